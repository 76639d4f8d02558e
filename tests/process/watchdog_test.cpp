#include "lockstep/process/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/process/process.h"
#include "tests/support/rank_process.h"

namespace lockstep::process {
namespace {

using namespace std::chrono_literals;

TEST(Watchdog, WorkThatEndsInTimeIsLeftAlone) {
  for (int i = 0; i < 20; ++i) {
    const Watchdog watchdog({.work = "nothing", .hint = "", .timeout = 60s, .on_hang = {}});
  }
}

// The only process of this run hangs, so no other rank can notice it.
TEST(Watchdog, WorkThatHangsEndsTheProcessAndIsNamed) {
  const NumberPipe told;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  RankProcess process([&]() -> int {
    ::dup2(writing.get(), STDERR_FILENO);
    const Watchdog watchdog(
        {.work = "counting to infinity",
         .hint = "start earlier",
         .timeout = 200ms,
         .on_hang = [&](const std::string& reason) { told.put(static_cast<int>(reason.size())); }});
    for (;;) ::pause();
  });
  EXPECT_EQ(process.wait(), 1);
  const std::string expected = "counting to infinity did not end within 0.2 s; start earlier";
  EXPECT_EQ(told.take(), static_cast<int>(expected.size()));
  writing = FileDescriptor();
  std::string said;
  for (char byte = 0; ::read(reading.get(), &byte, 1) == 1;) said += byte;
  EXPECT_EQ(said, "lockstep: " + expected + "\n");
}

TEST(Watchdog, TheTimeInWhichTheProcessWasStoppedDoesNotCount) {
  const NumberPipe pids;
  RankProcess process([&] {
    const Watchdog watchdog({.work = "a pause", .hint = "", .timeout = 2s, .on_hang = {}});
    pids.put(::getpid());
    ::raise(SIGSTOP);
    return 0;
  });
  const pid_t pid = pids.take();
  ASSERT_TRUE(eventually([&] { return process_status(pid).value().state == 'T'; }));
  std::this_thread::sleep_for(2500ms);  // longer than the timeout; this is what is tested
  process.send(SIGCONT);
  EXPECT_EQ(process.wait(), 0);
}

}  // namespace
}  // namespace lockstep::process
