#include "lockstep/process/worker_process.h"

#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/process/child_process.h"
#include "tests/support/rank_process.h"

namespace lockstep::process {
namespace {

// Forks rank 1 of a group of two ranks and waits for its end. This process is rank 0.
struct OneWorker {
  explicit OneWorker(const std::function<void(HostGroup&)>& work,
                     const std::function<bool()>& probe = {}, bool bare = false) {
    int ends[2];
    if (::pipe(ends) != 0) throw Error("cannot make a pipe");
    const FileDescriptor reading(ends[0]);
    FileDescriptor writing(ends[1]);
    HostGroup own(memory, {.rank = 1});
    const pid_t caller = ::getpid();
    flush_output();
    const pid_t pid = fork_process(bare);
    if (pid == 0) {
      die_with_parent(caller);
      run_worker_process({.host_group = own, .probe = probe, .work = work, .caller = caller},
                         std::move(writing));
    }
    writing = FileDescriptor();
    ChildProcess process(pid);
    char bytes[1000];
    for (ssize_t count = 0; (count = ::read(reading.get(), bytes, sizeof bytes)) > 0;) {
      printed.append(bytes, static_cast<std::size_t>(count));
    }
    end = process.reap();
  }

  std::shared_ptr<HostGroupMemory> memory = std::make_shared<HostGroupMemory>(2);
  HostGroup host_group{memory, {}};
  std::string printed;
  ChildEnd end;
};

TEST(WorkerProcess, DoesItsWorkAndEnds) {
  for (const bool bare : {false, true}) {
    const OneWorker worker([](HostGroup& host_group) { std::printf("rank %d", host_group.rank()); },
                           {}, bare);
    EXPECT_TRUE(worker.end.ok());
    EXPECT_EQ(worker.printed, "rank 1");
    EXPECT_EQ(worker.host_group.state(1), MemberState::kLeft);
    EXPECT_FALSE(worker.host_group.failure());
  }
}

TEST(WorkerProcess, ReportsWhatItsWorkThrows) {
  const OneWorker worker([](HostGroup& host_group) {
    host_group.set_progress(1, 2);
    throw ConfigError("lr: expected a positive number, got -1");
  });
  EXPECT_EQ(worker.end.exit_code, 1);
  const auto failure = worker.host_group.failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->reason, "lr: expected a positive number, got -1");
  EXPECT_EQ(failure->kind, FailureKind::kConfig);
  EXPECT_EQ(failure->batch, 2);
}

TEST(WorkerProcess, SaysThatItIsUnfit) {
  bool worked = false;
  const OneWorker worker([&](HostGroup&) { worked = true; }, [] { return false; });
  EXPECT_TRUE(worker.end.ok());
  EXPECT_FALSE(worked);
  EXPECT_EQ(worker.host_group.state(1), MemberState::kUnfit);
}

TEST(WorkerProcess, DoesNotRunWhatTheProgramDoesAtItsEnd) {
  const NumberPipe ends;
  static const NumberPipe* of_the_program = nullptr;
  RankProcess program([&] {
    of_the_program = &ends;
    std::atexit([] { of_the_program->put(1); });
    return OneWorker([](HostGroup&) {}).end.ok() ? 0 : 1;
  });
  EXPECT_EQ(program.wait(), 0);
  EXPECT_TRUE(ends.empty());
}

TEST(WorkerProcess, EndsIfItsParentHasDiedBefore) {
  RankProcess orphan([] {
    die_with_parent(::getpid());  // the parent is another process
    return 0;
  });
  EXPECT_EQ(orphan.wait(), 1);
}

}  // namespace
}  // namespace lockstep::process
