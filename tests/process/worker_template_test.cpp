#include "lockstep/process/worker_template.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/process/forked_workers.h"
#include "tests/support/no_pidfd.h"
#include "tests/support/rank_process.h"
#include "tests/support/slowdown.h"

namespace lockstep::process {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Work = std::function<void(HostGroup&)>;

class WorkerTemplates : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kHasThreadSanitizer)
      GTEST_SKIP() << "ThreadSanitizer: does not know of processes that are made without fork()";
  }
};

bool no_child_is_left() {
  siginfo_t none{};
  return ::waitid(P_ALL, 0, &none, WEXITED | WNOHANG | WNOWAIT) != 0;
}

bool runs(pid_t pid) {
  const auto status = process_status(pid);
  return status && status->state != 'Z' && status->state != 'X';
}

std::ptrdiff_t count_entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

// One attempt as the engine makes it. The message of its failure, or "".
std::string attempt(WorkerTemplate& worker_template, const Work& work, int size = 2) {
  ForkedWorkers forked(
      {.size = size, .timeout = scaled(10s), .recovers = true, .worker_template = &worker_template},
      work);
  try {
    work(forked.host_group());
    forked.join();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void meet_twice(HostGroup& host_group) {
  host_group.meet({.word = static_cast<std::uint64_t>(host_group.rank()) + 10});
  for (int rank = 0; rank < host_group.size(); ++rank) {
    ASSERT_EQ(host_group.word(rank), static_cast<std::uint64_t>(rank) + 10);
  }
  host_group.meet({});
}

TEST_F(WorkerTemplates, WorkersAreChildrenOfTheCallerAndMayDifferInNumber) {
  const pid_t caller = ::getpid();
  const Work work = [&](HostGroup& host_group) {
    meet_twice(host_group);
    if (host_group.rank() != 0 && ::getppid() != caller) throw Error("another parent");
  };
  WorkerTemplate worker_template({}, work);
  ASSERT_TRUE(worker_template.is_alive());
  for (const int size : {1, 2, 4, 3}) EXPECT_EQ(attempt(worker_template, work, size), "");
  EXPECT_TRUE(worker_template.is_alive());
}

TEST_F(WorkerTemplates, NothingIsLeftOfIt) {
  pid_t pid = 0;
  {
    WorkerTemplate worker_template({}, meet_twice);
    pid = worker_template.pid();
    EXPECT_TRUE(runs(pid));
    EXPECT_EQ(attempt(worker_template, meet_twice), "");
  }
  EXPECT_FALSE(runs(pid));
  EXPECT_TRUE(no_child_is_left());
}

// What the caller changes after the template was made, a worker does not see.
TEST_F(WorkerTemplates, WorkersBeginInTheStateInWhichTheTemplateWasMade) {
  int number = 1;
  const Work work = [&](HostGroup& host_group) {
    host_group.meet({.word = static_cast<std::uint64_t>(number)});
    if (host_group.word(1) != 1) throw Error("the worker has {}", host_group.word(1));
    ++number;
    host_group.meet({});
  };
  WorkerTemplate worker_template({}, work);
  EXPECT_EQ(attempt(worker_template, work), "");
  EXPECT_EQ(attempt(worker_template, work), "");
  EXPECT_EQ(number, 3);
}

// Processes that inherit an open file share its position.
TEST_F(WorkerTemplates, FilesHaveTheirFirstPositionInEveryAttempt) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "data") << "0123456789";
  const FileDescriptor file(::open((folder / "data").c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  const auto next = [&] {
    return ::read(file.get(), &byte, 1) == 1 ? static_cast<std::uint64_t>(byte - '0') : 99;
  };
  ASSERT_EQ(next(), 0U);
  const Work work = [&](HostGroup& host_group) {
    next();
    next();
    host_group.meet({.word = next()});
    if (host_group.word(1) != 3) throw Error("the worker read {}", host_group.word(1));
    if (host_group.word(2) != 3) throw Error("another worker read {}", host_group.word(2));
    host_group.meet({});
  };
  WorkerTemplate worker_template({}, work);
  EXPECT_EQ(attempt(worker_template, work, 3), "");
  EXPECT_EQ(attempt(worker_template, work, 3), "");
  EXPECT_EQ(next(), 7U) << "the caller's position is its own";
}

TEST_F(WorkerTemplates, AFileThatIsWrittenStaysShared) {
  const TemporaryDirectory folder;
  const FileDescriptor file(
      ::open((folder / "log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR));
  const Work work = [&](HostGroup& host_group) {
    for (int turn = 0; turn < host_group.size(); ++turn) {
      if (turn == host_group.rank() && ::write(file.get(), "x", 1) != 1) throw Error("no space");
      host_group.meet({});
    }
  };
  WorkerTemplate worker_template({}, work);
  EXPECT_EQ(attempt(worker_template, work, 3), "");
  EXPECT_EQ(read_file(folder / "log"), "xxx");
}

TEST_F(WorkerTemplates, LinesOfWorkersReachTheCaller) {
  const Work work = [](HostGroup& host_group) {
    if (host_group.rank() != 0) std::printf("worker %d\n", host_group.rank());
    host_group.meet({});
  };
  WorkerTemplate worker_template({}, work);
  for (int i = 0; i < 2; ++i) {
    std::map<int, std::string> lines;
    ForkedWorkers forked({.size = 3,
                          .first_rank = 4,
                          .timeout = kLimit,
                          .on_line = [&](int rank, const std::string& line) { lines[rank] = line; },
                          .worker_template = &worker_template},
                         work);
    work(forked.host_group());
    forked.join();
    EXPECT_EQ(lines, (std::map<int, std::string>{{5, "worker 1"}, {6, "worker 2"}}));
  }
}

TEST_F(WorkerTemplates, AfterAKilledWorkerTheNextAttemptWorks) {
  const SharedMemory shared(64);
  auto& kills = *reinterpret_cast<std::atomic<bool>*>(shared.data());
  const Work work = [&](HostGroup& host_group) {
    host_group.set_progress(2, 9);
    host_group.meet({});
    if (host_group.rank() == 1 && kills) ::raise(SIGKILL);
    host_group.meet({});
  };
  WorkerTemplate worker_template({}, work);
  for (int i = 0; i < 3; ++i) {
    kills = true;
    ForkedWorkers forked(
        {.size = 3, .timeout = kLimit, .recovers = true, .worker_template = &worker_template},
        work);
    EXPECT_THROW(work(forked.host_group()), WorkerError);
    const auto failure = forked.host_group().failure();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->rank, 1);
    EXPECT_EQ(failure->kind, FailureKind::kLost);
    EXPECT_EQ(failure->epoch, 2);
    EXPECT_EQ(failure->batch, 9);
    EXPECT_THAT(failure->reason, HasSubstr("killed by signal 9"));
    const auto start = Clock::now();
    forked.end_now();
    EXPECT_LT(Clock::now() - start, scaled(500ms));
  }
  kills = false;
  EXPECT_EQ(attempt(worker_template, work, 3), "");
}

TEST_F(WorkerTemplates, AnotherAttemptWorksAfterTheTemplateWasKilled) {
  WorkerTemplate worker_template({}, meet_twice);
  EXPECT_EQ(attempt(worker_template, meet_twice), "");
  ::kill(worker_template.pid(), SIGKILL);
  const auto start = Clock::now();
  EXPECT_EQ(attempt(worker_template, meet_twice, 3), "");
  EXPECT_TRUE(eventually([&] { return !worker_template.is_alive(); }));
  EXPECT_EQ(attempt(worker_template, meet_twice, 3), "");
  EXPECT_LT(Clock::now() - start, scaled(2s));
}

TEST_F(WorkerTemplates, TheEndOfTheTemplateDoesNotDisturbItsWorkers) {
  std::optional<WorkerTemplate> worker_template;
  const Work work = [&](HostGroup& host_group) {
    host_group.meet({});
    if (host_group.rank() == 0) {
      const pid_t pid = worker_template->pid();
      ::kill(pid, SIGKILL);
      EXPECT_TRUE(eventually([&] { return !runs(pid); }));
    }
    host_group.meet({});
    host_group.meet({});
  };
  worker_template.emplace(WorkerTemplateOptions{}, work);
  EXPECT_EQ(attempt(*worker_template, work, 3), "");
}

TEST_F(WorkerTemplates, AStoppedTemplateGoesOn) {
  std::optional<WorkerTemplate> worker_template;
  const Work work = [&](HostGroup& host_group) {
    host_group.meet({});
    if (host_group.rank() == 0) ::kill(worker_template->pid(), SIGSTOP);
    host_group.meet({});
  };
  worker_template.emplace(WorkerTemplateOptions{}, work);
  const auto start = Clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(attempt(*worker_template, work), "");
  EXPECT_TRUE(worker_template->is_alive());
  EXPECT_LT(Clock::now() - start, scaled(2s));
}

// Another process stops it again as soon as it is continued.
TEST_F(WorkerTemplates, ATemplateThatDoesNotAnswerIsGivenUp) {
  WorkerTemplate worker_template({.request_timeout = 300ms}, meet_twice);
  const pid_t pid = worker_template.pid();
  const RankProcess stopper([&] {
    for (;;) ::kill(pid, SIGSTOP);
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return process_status(pid)->state == 'T'; }));
  const auto start = Clock::now();
  EXPECT_EQ(attempt(worker_template, meet_twice), "");
  EXPECT_LT(Clock::now() - start, scaled(4s));
}

// Whenever the template is killed, also while it forks, there are neither too few nor unknown
// workers.
TEST_F(WorkerTemplates, ItMayBeKilledAtAnyMoment) {
  for (int i = 0; i < 30; ++i) {
    WorkerTemplate worker_template({}, meet_twice);
    const pid_t pid = worker_template.pid();
    RankProcess killer([&] {
      ::usleep(static_cast<useconds_t>(50 * i));
      ::kill(pid, SIGKILL);
      return 0;
    });
    EXPECT_EQ(attempt(worker_template, meet_twice, 4), "");
    EXPECT_EQ(killer.wait(), 0);
  }
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(WorkerTemplates, AllProcessesDieWithTheCaller) {
  const NumberPipe pids;
  RankProcess caller([&] {
    const Work work = [&](HostGroup& host_group) {
      host_group.meet({});
      pids.put(::getpid());
      wait_for_ever();
    };
    WorkerTemplate worker_template({}, work);
    pids.put(worker_template.pid());
    ForkedWorkers forked({.size = 3, .worker_template = &worker_template}, work);
    work(forked.host_group());
    return 0;
  });
  std::vector<pid_t> all;
  for (int i = 0; i < 4; ++i) all.push_back(pids.take());
  caller.send(SIGKILL);
  EXPECT_EQ(caller.wait(), -SIGKILL);
  for (const pid_t pid : all) EXPECT_TRUE(eventually([&] { return !runs(pid); }, 2s));
}

TEST_F(WorkerTemplates, AStoppedCallerIsEndedByAWorker) {
  const NumberPipe pids;
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    const Work work = [&](HostGroup& host_group) {
      host_group.meet({});
      if (host_group.rank() == 0) ::raise(SIGSTOP);
      host_group.meet({});
    };
    WorkerTemplate worker_template({}, work);
    pids.put(worker_template.pid());
    ForkedWorkers forked(
        {.size = 2, .timeout = 300ms, .recovers = true, .worker_template = &worker_template}, work);
    pids.put(forked.host_group().pid(1));
    work(forked.host_group());
    return 0;
  });
  const pid_t worker_template = pids.take();
  const pid_t worker = pids.take();
  EXPECT_EQ(caller.wait(), -SIGKILL);
  EXPECT_TRUE(eventually([&] { return !runs(worker_template) && !runs(worker); }, 2s));
}

TEST_F(WorkerTemplates, SignalsThatEndARunDoNotEndIt) {
  WorkerTemplate worker_template({}, meet_twice);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::kill(worker_template.pid(), signal);
  EXPECT_EQ(attempt(worker_template, meet_twice), "");
  EXPECT_TRUE(worker_template.is_alive());
}

TEST_F(WorkerTemplates, AWorkerHasTheHandlersOfTheProgram) {
  const auto before = ::signal(SIGHUP, [](int) {});
  const Work work = [&](HostGroup& host_group) {
    host_group.meet({});
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::raise(signal);
    host_group.meet({});
  };
  const Work only_worker = [&](HostGroup& host_group) {
    if (host_group.rank() != 0) return work(host_group);
    host_group.meet({});
    host_group.meet({});
  };
  WorkerTemplate worker_template({}, only_worker);
  EXPECT_EQ(attempt(worker_template, only_worker), "");
  // Here they are not blocked any more.
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_FALSE(::sigismember(&blocked, SIGINT));
  ::signal(SIGHUP, before);
}

TEST_F(WorkerTemplates, ItIsForkedWithoutHandlersIfTheProbeFails) {
  const SharedMemory memory(64);
  auto& probes = *reinterpret_cast<std::atomic<int>*>(memory.data());
  const std::function<bool()> probe = [&] { return ++probes > 1; };
  WorkerTemplate worker_template({.probe = probe}, meet_twice);
  EXPECT_TRUE(worker_template.is_alive());
  EXPECT_EQ(probes, 2);
  EXPECT_EQ(attempt(worker_template, meet_twice), "");
  EXPECT_EQ(probes, 2) << "only trial workers are probed";
}

TEST_F(WorkerTemplates, ItIsLostIfNoTrialIsPassed) {
  for (const auto& probe : {std::function<bool()>([] { return false; }),
                            std::function<bool()>([]() -> bool { throw Error("no GPU"); }),
                            std::function<bool()>([]() -> bool { ::_exit(0); })}) {
    WorkerTemplate worker_template({.probe = probe}, meet_twice);
    EXPECT_FALSE(worker_template.is_alive());
    EXPECT_TRUE(no_child_is_left());
    EXPECT_EQ(attempt(worker_template, meet_twice), "") << "forked from the caller";
  }
}

TEST_F(WorkerTemplates, NothingIsLeftOfFiftyAttempts) {
  const SharedMemory shared(64);
  auto& number = *reinterpret_cast<std::atomic<int>*>(shared.data());
  const Work work = [&](HostGroup& host_group) {
    host_group.meet({});
    if (host_group.rank() == 0) return;
    if (number % 5 == 1) throw Error("no");
    if (number % 5 == 2) ::kill(::getpid(), SIGKILL);
    if (number % 5 == 3) wait_for_ever();
  };
  const auto descriptors_before = count_entries("/proc/self/fd");
  {
    WorkerTemplate worker_template({}, work);
    const auto descriptors_of_template = [&] {
      return count_entries(fmt::format("/proc/{}/fd", worker_template.pid()));
    };
    number = 0;
    EXPECT_EQ(attempt(worker_template, work, 3), "");
    const auto descriptors = count_entries("/proc/self/fd");
    const auto theirs = descriptors_of_template();
    const auto threads = count_entries("/proc/self/task");
    for (int i = 1; i <= 50; ++i) {
      number = i;
      ForkedWorkers forked({.size = 3,
                            .timeout = scaled(10s),
                            .on_line = [](int, const std::string&) {},
                            .recovers = true,
                            .worker_template = &worker_template},
                           work);
      message_of<Error>([&] { work(forked.host_group()); });
      if (i % 5 == 3) continue;  // destroyed while the workers run
      message_of<Error>([&] { forked.join(); });
    }
    EXPECT_TRUE(worker_template.is_alive());
    EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
    EXPECT_EQ(count_entries("/proc/self/task"), threads);
    EXPECT_EQ(descriptors_of_template(), theirs);
  }
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors_before);
  EXPECT_TRUE(no_child_is_left());
}

TEST_F(WorkerTemplates, ItWorksIfTheKernelReapsAllChildren) {
  RankProcess caller([&] {
    ::signal(SIGCHLD, SIG_IGN);
    WorkerTemplate worker_template({.probe = [] { return true; }}, meet_twice);
    if (!worker_template.is_alive()) return 1;
    if (!attempt(worker_template, meet_twice, 3).empty()) return 2;
    ::kill(worker_template.pid(), SIGKILL);
    if (!attempt(worker_template, meet_twice, 3).empty()) return 3;
    return 0;
  });
  EXPECT_EQ(caller.wait(), 0);
}

TEST_F(WorkerTemplates, ItWorksWithoutPidfds) {
  RankProcess caller([&] {
    forbid_pidfd();
    WorkerTemplate worker_template({.probe = [] { return true; }}, meet_twice);
    if (!attempt(worker_template, meet_twice).empty()) return 1;
    ::kill(worker_template.pid(), SIGKILL);
    if (!attempt(worker_template, meet_twice).empty()) return 2;
    return no_child_is_left() ? 0 : 3;
  });
  EXPECT_EQ(caller.wait(), 0);
}

// The limit counts the processes of a user, and does not apply to root.
TEST_F(WorkerTemplates, ALackOfProcessesSaysHowManyThereCanBe) {
  RankProcess caller([&] {
    constexpr uid_t kNobody = 61235;
    if (::getuid() == 0 && ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) != 0) return 77;
    WorkerTemplate worker_template({}, meet_twice);
    // This process has two threads now, and the template is one; a worker needs two more.
    const rlimit few{.rlim_cur = 6, .rlim_max = 6};
    ::setrlimit(RLIMIT_NPROC, &few);
    ::prlimit(worker_template.pid(), RLIMIT_NPROC, &few, nullptr);
    try {
      attempt(worker_template, meet_twice, 20);
    } catch (const ForkError& error) {
      if (error.possible() < 2 || error.possible() > 6) return 1;
      if (!std::string_view(error.what()).starts_with("cannot fork worker")) return 2;
      if (!no_child_is_left()) {  // only the template is left
        return attempt(worker_template, meet_twice, 2).empty() ? 0 : 3;
      }
    }
    return 4;
  });
  EXPECT_EQ(caller.wait(), 0);
}

}  // namespace
}  // namespace lockstep::process
