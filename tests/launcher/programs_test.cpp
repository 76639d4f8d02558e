#include "lockstep/launcher/programs.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/file.h"
#include "lockstep/process/background.h"
#include "lockstep/process/process.h"
#include "tests/support/no_pidfd.h"
#include "tests/support/rank_process.h"

namespace lockstep::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Gt;

// Options for ranks that all run the same script; $RANK is the rank's number.
ProgramsOptions ranks(const std::string& script, int count) {
  ProgramsOptions options{.command = {"bash", "-c", script}};
  for (int rank = 0; rank < count; ++rank) {
    process::Environment environment = process::current_environment();
    environment["RANK"] = std::to_string(rank);
    options.environments.push_back(environment);
  }
  return options;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Programs, HandOnTheirLinesWithTheirRank) {
  ProgramsOptions options = ranks("echo one $RANK; printf two; echo bad >&2", 2);
  std::vector<std::string> lines;
  options.on_lines = [&](int rank, std::size_t stream, const std::vector<std::string>& some) {
    for (const auto& line : some) lines.push_back(fmt::format("{} {} {}", rank, stream, line));
  };
  OrphanReaper reaper;
  const ProgramsEnd end = run_programs(options, reaper);
  EXPECT_FALSE(end.first_failure);
  EXPECT_THAT(lines, testing::UnorderedElementsAre("0 0 one 0", "0 0 two", "0 1 bad", "1 0 one 1",
                                                   "1 0 two", "1 1 bad"));
}

TEST(Programs, TheFirstFailureEndsTheOthersSoon) {
  // The other ranks ignore SIGTERM. Rank 1 fails when they do.
  const TemporaryDirectory folder;
  ProgramsOptions options = ranks(
      fmt::format("cd {}; if [ $RANK = 1 ]; then until [ -e 0 -a -e 2 ]; do sleep 0.01; done; "
                  "echo oops >&2; exit 7; fi; trap '' TERM; touch $RANK; sleep 60 & wait; sleep 60",
                  folder.path().string()),
      3);
  options.grace = std::chrono::milliseconds(300);
  OrphanReaper reaper;
  ProgramsEnd end;
  EXPECT_LT(seconds_of([&] { end = run_programs(options, reaper); }), 10.0);
  ASSERT_EQ(end.first_failure, 1u);
  EXPECT_EQ(end.ranks[1].end.exit_code, 7);
  EXPECT_THAT(end.ranks[1].last_lines, ElementsAre("oops"));
  EXPECT_FALSE(end.ranks[1].stopped);
  EXPECT_TRUE(end.ranks[0].stopped);
  EXPECT_EQ(end.ranks[0].end.signal, SIGKILL);
}

// Old kernels and old containers have no pidfds. The launcher once waited for ever there, and not
// even SIGTERM ended it.
TEST(Programs, AreWatchedWithoutPidfds) {
  RankProcess launcher([] {
    forbid_pidfd();
    OrphanReaper reaper;
    const ProgramsEnd end =
        run_programs(ranks("if [ $RANK = 1 ]; then exit 3; fi; sleep 60", 2), reaper);
    if (end.first_failure != 1U || end.ranks[1].end.exit_code != 3) return 1;
    return end.ranks[0].end.signal == SIGTERM ? 0 : 2;
  });
  EXPECT_EQ(launcher.wait(), 0);
}

// Rank 1 gives up because rank 0 does not answer: a signal has stopped rank 0.
TEST(Programs, ARankThatWasStoppedIsSeenAndKilledBeforeItsGraceIsOver) {
  ProgramsOptions options = ranks(
      "if [ $RANK = 0 ]; then echo $$ > $FILE; kill -STOP $$; sleep 60; fi; "
      "until [ -s $FILE ] && grep -q '^State:.T' /proc/$(cat $FILE)/status; do sleep 0.02; done; "
      "exit 1",
      2);
  const TemporaryDirectory folder;
  for (auto& environment : options.environments) environment["FILE"] = (folder / "pid").string();
  options.grace = std::chrono::seconds(30);
  OrphanReaper reaper;
  ProgramsEnd end;
  EXPECT_LT(seconds_of([&] { end = run_programs(options, reaper); }), 15.0);
  ASSERT_EQ(end.first_failure, 1u);
  EXPECT_TRUE(end.ranks[0].suspended);
  EXPECT_FALSE(end.ranks[1].suspended);
  EXPECT_EQ(end.ranks[0].end.signal, SIGKILL);
}

// All work is done, so no other rank waits for the stopped one, and the run would never end.
TEST(Programs, ARankThatIsStoppedWhenTheOthersAreDoneIsEnded) {
  ProgramsOptions options = ranks("if [ $RANK = 1 ]; then kill -STOP $$; fi", 3);
  options.stopped_grace = std::chrono::milliseconds(600);
  OrphanReaper reaper;
  ProgramsEnd end;
  const double seconds = seconds_of([&] { end = run_programs(options, reaper); });
  EXPECT_GT(seconds, 0.5);
  EXPECT_LT(seconds, 15.0);
  EXPECT_FALSE(end.first_failure);
  EXPECT_TRUE(end.ranks[1].suspended);
  EXPECT_TRUE(end.ranks[1].stopped);
  EXPECT_EQ(end.ranks[1].end.signal, SIGKILL);
  EXPECT_TRUE(end.ranks[0].end.ok());
  EXPECT_TRUE(end.ranks[2].end.ok());
}

TEST(Programs, ARankThatStillWorksOrIsContinuedIsNotEnded) {
  // Rank 0 works on. Rank 1 is continued in time.
  ProgramsOptions options = ranks(
      "if [ $RANK = 0 ]; then sleep 1.5; fi; "
      "if [ $RANK = 1 ]; then (sleep 0.3; kill -CONT $$) & kill -STOP $$; fi",
      3);
  options.stopped_grace = std::chrono::milliseconds(1000);
  OrphanReaper reaper;
  const ProgramsEnd end = run_programs(options, reaper);
  for (const RankEnd& rank : end.ranks) EXPECT_TRUE(rank.end.ok()) << rank.rank;
}

// If the ranks of other hosts are done is asked for; a run whose ranks are all stopped goes on.
TEST(Programs, ARankThatIsStoppedWaitsForOtherHosts) {
  ProgramsOptions options = ranks("(sleep 1.2; kill -CONT $$) & kill -STOP $$", 1);
  options.stopped_grace = std::chrono::milliseconds(300);
  OrphanReaper reaper;
  EXPECT_TRUE(run_programs(options, reaper).ranks[0].end.ok());
  options.others_ended = [] { return false; };
  EXPECT_TRUE(run_programs(options, reaper).ranks[0].end.ok());
  options.others_ended = [] { return true; };
  EXPECT_TRUE(run_programs(options, reaper).ranks[0].suspended);
}

// A rank that dies at the same time as the first one that is noticed was not stopped by the
// launcher.
TEST(Programs, ARankThatEndedBeforeItWasToldToIsNotStopped) {
  ProgramsOptions options =
      ranks("echo $$; until [ -e $FILE ]; do sleep 0.01; done; exit $((RANK + 5))", 3);
  const TemporaryDirectory folder;
  for (auto& environment : options.environments) environment["FILE"] = (folder / "go").string();
  std::vector<std::string> pids;
  // The launcher is busy here until all ranks have ended.
  options.on_lines = [&](int, std::size_t, const std::vector<std::string>& some) {
    pids.insert(pids.end(), some.begin(), some.end());
    if (pids.size() < 3) return;
    write_file_atomically(folder / "go", "");
    for (const auto& pid : pids) {
      EXPECT_TRUE(eventually([&] {
        const auto status = process::process_status(std::stoi(pid));
        return !status || status->state == 'Z';
      }));
    }
  };
  OrphanReaper reaper;
  const ProgramsEnd end = run_programs(options, reaper);
  ASSERT_TRUE(end.first_failure);
  ASSERT_TRUE(end.failed);
  for (const RankEnd& rank : end.ranks) {
    EXPECT_EQ(rank.end.exit_code, rank.rank + 5);
    EXPECT_FALSE(rank.stopped) << rank.rank;
    EXPECT_GE(rank.time - *end.failed, -std::chrono::seconds(1));
  }
}

TEST(Programs, TellWhenAllWereStarted) {
  int started = 0;
  ProgramsOptions options = ranks("true", 2);
  options.on_started = [&] { ++started; };
  OrphanReaper reaper;
  run_programs(options, reaper);
  EXPECT_EQ(started, 1);
}

TEST(Programs, AreEndedWhenTheStopDescriptorIsReadable) {
  const ProgramsOptions options = ranks("sleep 60", 2);
  process::Wakeup stop;
  stop.wake();
  OrphanReaper reaper;
  ProgramsEnd end;
  EXPECT_LT(seconds_of([&] { end = run_programs(options, reaper, stop.fd()); }), 10.0);
  EXPECT_FALSE(end.first_failure);
  EXPECT_TRUE(end.ranks[0].stopped);
}

TEST(Programs, ASignalToTheLauncherReachesThem) {
  // The programs' own trap decides how they end.
  const ProgramsOptions options =
      ranks("trap 'echo saved; exit 5' INT; echo ready; while :; do sleep 0.05; done", 1);
  std::vector<std::string> lines;
  ProgramsOptions watched = options;
  watched.on_lines = [&](int, std::size_t, const std::vector<std::string>& some) {
    lines.insert(lines.end(), some.begin(), some.end());
    if (some.back() == "ready") ::kill(::getpid(), SIGINT);
  };
  OrphanReaper reaper;
  const ProgramsEnd end = run_programs(watched, reaper);
  EXPECT_EQ(end.interrupted, SIGINT);
  EXPECT_EQ(end.ranks[0].end.exit_code, 5);
  EXPECT_THAT(lines, ElementsAre("ready", "saved"));
}

TEST(Programs, ARankThatNeverStopsPrintingHidesNoOther) {
  ProgramsOptions options = ranks("if [ $RANK = 0 ]; then exec yes; fi; sleep 0.3; exit 3", 2);
  options.on_lines = [](int, std::size_t, const std::vector<std::string>&) {};
  OrphanReaper reaper;
  ProgramsEnd end;
  EXPECT_LT(seconds_of([&] { end = run_programs(options, reaper); }), 20.0);
  ASSERT_EQ(end.first_failure, 1u);
  EXPECT_EQ(end.ranks[1].end.exit_code, 3);
}

TEST(Programs, AProgressBarsReturnsAreEndsOfLines) {
  ProgramsOptions options = ranks("printf 'a\\rb\\r\\nc\\n\\nd'", 1);
  std::vector<std::string> lines;
  options.on_lines = [&](int, std::size_t, const std::vector<std::string>& some) {
    lines.insert(lines.end(), some.begin(), some.end());
  };
  OrphanReaper reaper;
  run_programs(options, reaper);
  EXPECT_THAT(lines, ElementsAre("a", "b", "c", "", "d"));
}

TEST(Programs, KeepTheLastLinesOnly) {
  const ProgramsOptions options = ranks("seq 1 100; exit 1", 1);
  OrphanReaper reaper;
  const ProgramsEnd end = run_programs(options, reaper);
  EXPECT_EQ(end.ranks[0].last_lines.size(), 20u);
  EXPECT_EQ(end.ranks[0].last_lines.back(), "100");
}

TEST(Programs, WriteTheirOutputToFiles) {
  const TemporaryDirectory folder;
  ProgramsOptions options = ranks("echo out $RANK; echo err >&2", 2);
  options.log_dir = folder / "logs";
  OrphanReaper reaper;
  run_programs(options, reaper);
  EXPECT_EQ(read_file(folder / "logs/rank1/stdout.log"), "out 1\n");
  EXPECT_EQ(read_file(folder / "logs/rank0/stderr.log"), "err\n");
  options.append_logs = true;
  run_programs(options, reaper);
  EXPECT_EQ(read_file(folder / "logs/rank1/stdout.log"), "out 1\nout 1\n");
}

}  // namespace
}  // namespace lockstep::launcher
