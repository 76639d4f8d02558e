#include "lockstep/process/forked_workers.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/process/process.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::process {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

bool has_children() {
  siginfo_t none{};
  return ::waitid(P_ALL, 0, &none, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool is_running(pid_t pid) {
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
  if (file == nullptr) return false;
  char state = '?';
  const bool known = std::fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
  std::fclose(file);
  return known && state != 'Z' && state != 'X';
}

std::ptrdiff_t entries(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

// Sleeps longer than any test waits.
void hang() {
  std::this_thread::sleep_for(kLimit);
}

TEST(ForkedWorkers, TheCallerIsRankZeroAndEveryOtherRankIsAProcess) {
  for (const int size : {1, 2, 3, 4, 8}) {
    const auto seen = SharedMemory(64);
    run_ranks(size, [&](HostGroup& host_group) {
      EXPECT_EQ(host_group.size(), size);
      seen.data()[host_group.rank()] = std::byte{1};
      host_group.meet({.word = static_cast<std::uint64_t>(::getpid())});
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(host_group.word(rank), static_cast<std::uint64_t>(host_group.pid(rank)));
        EXPECT_EQ(host_group.pid(rank) == ::getpid(), rank == host_group.rank());
      }
    });
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(std::to_integer<bool>(seen.data()[rank]), rank < size);
    }
    EXPECT_FALSE(has_children());
  }
}

TEST(ForkedWorkers, MoreWorkersThanCoresTakeNotMuchLonger) {
  const auto start = Clock::now();
  run_ranks(8, [](HostGroup& host_group) {
    for (int i = 0; i < 500; ++i) host_group.meet({});
  });
  EXPECT_LT(Clock::now() - start, scaled(5s));
}

TEST(ForkedWorkers, NoRankIsRefused) {
  EXPECT_THAT(message_of<ConfigError>([] { ForkedWorkers({.size = 0}, [](HostGroup&) {}); }),
              HasSubstr("expected 1 or more, got 0"));
}

TEST(ForkedWorkers, WhatAWorkerThrowsReachesTheOthers) {
  const auto start = Clock::now();
  const std::string text = error_of_ranks({.size = 3}, [](HostGroup& host_group) {
    host_group.set_progress(1, 4);
    if (host_group.rank() == 1) throw DataError("image 7 is broken");
    host_group.meet({});
  });
  EXPECT_EQ(text, "rank 1 (in epoch 1, batch 4): image 7 is broken");
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_FALSE(has_children());
}

TEST(ForkedWorkers, JoinThrowsWhatAWorkerThrew) {
  ForkedWorkers forked({.size = 2}, [](HostGroup& host_group) {
    host_group.meet({});
    throw 42;
  });
  forked.host_group().meet({});
  EXPECT_EQ(message_of<WorkerError>([&] { forked.join(); }),
            "rank 1: threw something that is no exception");
}

TEST(ForkedWorkers, RanksAreNamedAsTheRunNamesThem) {
  ForkedWorkers forked({.size = 2, .first_rank = 6}, [](HostGroup&) { throw Error("no"); });
  EXPECT_EQ(message_of<WorkerError>([&] { forked.join(); }), "rank 7: no");
}

TEST(ForkedWorkers, AKilledWorkerIsNamedWithItsSignal) {
  for (const int signal : {SIGKILL, SIGABRT}) {
    const auto start = Clock::now();
    const std::string text = error_of_ranks({.size = 3}, [&](HostGroup& host_group) {
      host_group.meet({});
      host_group.set_progress(2, 9);
      if (host_group.rank() == 2) ::raise(signal);
      host_group.meet({});
      host_group.meet({});
    });
    EXPECT_THAT(text,
                AllOf(HasSubstr("rank 2 (in epoch 2, batch 9): its process was killed by signal " +
                                std::to_string(signal)),
                      HasSubstr(strsignal(signal))));
    EXPECT_LT(Clock::now() - start, scaled(2s));
    EXPECT_FALSE(has_children());
  }
}

// The other ranks are in a long batch and do not check for failures, so they are killed.
TEST(ForkedWorkers, WorkersThatDoNotSeeAFailureAreKilled) {
  const auto start = Clock::now();
  ForkedWorkers forked({.size = 3}, [](HostGroup& host_group) {
    if (host_group.rank() == 1) ::_exit(3);
    hang();
  });
  EXPECT_EQ(message_of<WorkerError>([&] { forked.join(); }),
            "rank 1: its process ended with code 3");
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_FALSE(has_children());
}

TEST(ForkedWorkers, AStoppedWorkerIsNamedPastTheLimitAndAllAreGone) {
  const auto start = Clock::now();
  std::vector<pid_t> pids;
  const std::string text =
      error_of_ranks({.size = 3, .timeout = 500ms}, [&](HostGroup& host_group) {
        host_group.meet({});
        for (int rank = 0; rank < 3; ++rank) pids.push_back(host_group.pid(rank));
        if (host_group.rank() == 1) ::raise(SIGSTOP);
        host_group.meet({.operation = Operation::kAllReduce, .detail = 80});
      });
  EXPECT_THAT(text, AllOf(ContainsRegex("rank 1: all_reduce of 80 bytes: waited 0\\.[56] s:"),
                          HasSubstr("ranks 0, 2 arrived, rank 1 did not")));
  EXPECT_LT(Clock::now() - start, scaled(3s));
  EXPECT_FALSE(has_children());
  EXPECT_FALSE(is_running(pids.at(1)));
  EXPECT_FALSE(is_running(pids.at(2)));
}

TEST(ForkedWorkers, AWorkerThatDoesNotEndAfterTheCallerIsDoneIsNamed) {
  ForkedWorkers forked({.size = 3, .timeout = 300ms}, [](HostGroup& host_group) {
    if (host_group.rank() == 2) hang();
  });
  const auto start = Clock::now();
  EXPECT_EQ(message_of<WorkerError>([&] { forked.join(); }),
            "rank 2: did not end within 0.3 s after rank 0 was done");
  EXPECT_LT(Clock::now() - start, scaled(3s));
  EXPECT_FALSE(has_children());
}

TEST(ForkedWorkers, ACallerThatThrowsLeavesNoWorker) {
  const auto start = Clock::now();
  EXPECT_THAT(error_of_ranks({.size = 4},
                             [](HostGroup& host_group) {
                               host_group.meet({});
                               if (host_group.rank() == 0) throw Error("enough");
                               hang();
                             }),
              "enough");
  EXPECT_LT(Clock::now() - start, scaled(1s));
  EXPECT_FALSE(has_children());
}

// Called by all ranks of a process that has forked workers: rank 0 writes the workers' pids to the
// pipe.
void put_pids(const NumberPipe& pids, HostGroup& host_group) {
  host_group.meet({});
  if (host_group.rank() != 0) return;
  for (int rank = 1; rank < host_group.size(); ++rank) pids.put(host_group.pid(rank));
}

TEST(ForkedWorkers, WorkersDieWithACallerThatWasKilled) {
  const NumberPipe pids;
  RankProcess caller([&] {
    run_ranks(3, [&](HostGroup& host_group) {
      put_pids(pids, host_group);
      hang();
    });
    return 0;
  });
  const std::array<pid_t, 2> workers = {pids.take(), pids.take()};
  for (const pid_t worker : workers) EXPECT_TRUE(is_running(worker));
  caller.send(SIGKILL);
  EXPECT_EQ(caller.wait(), -SIGKILL);
  for (const pid_t worker : workers) {
    EXPECT_TRUE(eventually([&] { return !is_running(worker); }, 2s));
  }
}

TEST(ForkedWorkers, ACallerThatIsStoppedPastTheLimitIsEnded) {
  const NumberPipe pids;
  const auto start = Clock::now();
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    run_ranks({.size = 3, .timeout = 300ms}, [&](HostGroup& host_group) {
      put_pids(pids, host_group);
      if (host_group.rank() == 0) ::raise(SIGSTOP);
      host_group.meet({});
    });
    return 0;
  });
  const std::array<pid_t, 2> workers = {pids.take(), pids.take()};
  EXPECT_EQ(caller.wait(), -SIGKILL);
  for (const pid_t worker : workers) {
    EXPECT_TRUE(eventually([&] { return !is_running(worker); }, 2s));
  }
  EXPECT_LT(Clock::now() - start, scaled(4s));
}

// Over TCP a worker may report a failure of its own rank first, although the caller is the one that
// is stopped.
TEST(ForkedWorkers, AStoppedCallerIsEndedWhicheverRankFailed) {
  const auto start = Clock::now();
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    run_ranks({.size = 2, .timeout = 60s}, [&](HostGroup& host_group) {
      if (host_group.rank() == 0) ::raise(SIGSTOP);
      const PeerProcess zero(host_group.pid(0));
      if (!eventually([&] { return zero.is_stopped(); })) return;
      throw CommError("the connection to rank 0 does not answer");
    });
    return 0;
  });
  EXPECT_EQ(caller.wait(), -SIGKILL);
  EXPECT_LT(Clock::now() - start, scaled(5s));
}

TEST(ForkedWorkers, ACallerThatHangsAfterAFailureIsEnded) {
  const NumberPipe pids;
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    run_ranks({.size = 2, .timeout = 300ms}, [&](HostGroup& host_group) {
      put_pids(pids, host_group);
      if (host_group.rank() == 1) throw Error("no");
      hang();
    });
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_EQ(caller.wait(), 1);
  EXPECT_LT(Clock::now() - start, scaled(4s));
}

TEST(ForkedWorkers, ACallerWithNothingToPutAwayIsEndedWithinTwoSeconds) {
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    end_on_failure(3);
    run_ranks({.size = 3, .timeout = 60s}, [&](HostGroup& host_group) {
      if (host_group.rank() == 1) throw Error("no");
      hang();
    });
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_EQ(caller.wait(), 3);
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

// Collects the lines of each rank in the order in which they arrive.
class Lines {
 public:
  std::function<void(int, const std::string&)> collector() {
    return [this](int rank, const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_[rank].push_back(line);
    };
  }
  const std::vector<std::string>& of(int rank) { return lines_[rank]; }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<std::string>> lines_;
};

TEST(ForkedWorkers, LinesOfWorkersComeWholeAndInOrder) {
  Lines lines;
  ForkedWorkers forked({.size = 3, .on_line = lines.collector()}, [](HostGroup& host_group) {
    const std::string name = "worker " + std::to_string(host_group.rank());
    std::cout << name << " says" << std::flush << " hello\n";
    std::printf("%s\n", std::string(200'000, 'x').c_str());  // more than a pipe holds
    std::fprintf(stderr, "\nand a last word");
  });
  forked.join();
  for (const int rank : {1, 2}) {
    EXPECT_THAT(lines.of(rank), ElementsAre("worker " + std::to_string(rank) + " says hello",
                                            std::string(200'000, 'x'), "", "and a last word"));
  }
}

TEST(ForkedWorkers, LinesOfAWorkerThatWasKilledAreNotLost) {
  Lines lines;
  ForkedWorkers forked({.size = 2, .first_rank = 4, .on_line = lines.collector()}, [](HostGroup&) {
    std::printf("whole\n");
    std::fprintf(stderr, "half");
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_THROW(forked.join(), WorkerError);
  EXPECT_THAT(lines.of(5), ElementsAre("whole", "half"));
}

// A child of a worker may keep the pipe open.
TEST(ForkedWorkers, AGrandchildThatOutlivesItsWorkerDoesNotHoldUpTheEnd) {
  Lines lines;
  const NumberPipe pids;
  const auto start = Clock::now();
  {
    ForkedWorkers forked({.size = 2, .on_line = lines.collector()}, [&](HostGroup&) {
      std::printf("before\n");
      const pid_t child = ::fork();
      if (child == 0) {
        hang();
        ::_exit(0);
      }
      pids.put(child);
      std::printf("after");
    });
    forked.join();
  }
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_THAT(lines.of(1), ElementsAre("before", "after"));
  ::kill(pids.take(), SIGKILL);
}

TEST(ForkedWorkers, OutputBeforeTheForkIsPrintedOnce) {
  const NumberPipe unused;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  RankProcess caller([&] {
    ::dup2(writing.get(), STDOUT_FILENO);
    std::printf("once ");
    std::cout << "only";
    run_ranks(3, [](HostGroup& host_group) { host_group.meet({}); });
    return std::fflush(stdout);
  });
  writing = FileDescriptor();
  EXPECT_EQ(caller.wait(), 0);
  char bytes[100] = {};
  EXPECT_EQ(::read(reading.get(), bytes, sizeof bytes - 1), 9);
  EXPECT_STREQ(bytes, "once only");
}

TEST(ForkedWorkers, NothingIsLeftOfFiftyGroups) {
  const TemporaryDirectory temporary;
  ::setenv("TMPDIR", temporary.path().c_str(), 1);
  const auto named_memory = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      count += entry.path().filename().string().find("lockstep") != std::string::npos;
    }
    return count;
  };
  // The first run opens descriptors that stay open.
  run_ranks(2, [](HostGroup& host_group) { host_group.meet({}); });
  const auto descriptors = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  const int memories = named_memory();
  Lines lines;
  for (int i = 0; i < 50; ++i) {
    ForkedWorkers forked({.size = 3, .on_line = lines.collector()}, [&](HostGroup& host_group) {
      std::printf("%d\n", i);
      host_group.meet({});
      if (i % 5 == 1) throw Error("no");
      if (i % 5 == 2) ::kill(::getpid(), SIGKILL);
    });
    message_of<Error>([&] { forked.host_group().meet({}); });
    if (i % 5 == 3) continue;  // destroyed without join()
    message_of<Error>([&] { forked.join(); });
  }
  EXPECT_FALSE(has_children());
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(named_memory(), memories);
  EXPECT_EQ(entries(temporary.path()), 0);
  ::unsetenv("TMPDIR");
}

TEST(ForkedWorkers, AProbeThatFailsIsTriedAgainAndThenReported) {
  const SharedMemory memory(64);
  auto& probes = *reinterpret_cast<std::atomic<int>*>(memory.data());
  const ForkedWorkersOptions options{.size = 2, .probe = [&] { return ++probes > 2; }};
  EXPECT_THAT(message_of<WorkerError>([&] { ForkedWorkers(options, [](HostGroup&) {}); }),
              AllOf(HasSubstr("cannot fork 1 workers"), HasSubstr("torchrun")));
  EXPECT_EQ(probes, 2);
  EXPECT_FALSE(has_children());
  ForkedWorkers forked(options, [](HostGroup& host_group) { host_group.meet({}); });
  forked.host_group().meet({});
  forked.join();
  EXPECT_EQ(probes, 3);
}

TEST(ForkedWorkers, TheSecondWayToForkWorks) {
  const SharedMemory memory(64);
  auto& probes = *reinterpret_cast<std::atomic<int>*>(memory.data());
  Lines lines;
  ForkedWorkers forked(
      {.size = 2, .probe = [&] { return ++probes > 1; }, .on_line = lines.collector()},
      [](HostGroup& host_group) {
        host_group.meet({.word = 7});
        std::printf("here\n");
      });
  forked.host_group().meet({});
  EXPECT_EQ(forked.host_group().word(1), 7U);
  forked.join();
  EXPECT_THAT(lines.of(1), ElementsAre("here"));
}

TEST(ForkedWorkers, AProbeThatThrowsSaysWhy) {
  ForkedWorkers forked({.size = 2, .probe = []() -> bool { throw Error("no GPU"); }},
                       [](HostGroup&) {});
  EXPECT_EQ(message_of<WorkerError>([&] { forked.join(); }), "rank 1: no GPU");
  EXPECT_FALSE(has_children());
}

// The exit status of a worker is lost then, so the state that it wrote to shared memory counts.
TEST(ForkedWorkers, WorksIfAnotherPartOfTheProgramReapsTheWorkers) {
  struct Case {
    const char* name;
    void (*action)(int);
    const char* death;  // what is known about a killed worker
  };
  const auto reap_all = [](int) {
    const int before = errno;
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    errno = before;
  };
  const Case cases[] = {
      {"SIGCHLD is ignored", SIG_IGN, "rank 2: its process ended before its work was done; its"},
      // Either this handler or the supervisor reaps the worker first.
      {"the program reaps every child", reap_all, "rank 2: its process "}};
  for (const Case& given : cases) {
    SCOPED_TRACE(given.name);
    const auto start = Clock::now();
    RankProcess caller([&] {
      ::signal(SIGCHLD, given.action);
      run_ranks(3, [](HostGroup& host_group) { host_group.meet({}); });
      const std::string killed = error_of_ranks({.size = 3}, [](HostGroup& host_group) {
        host_group.meet({});
        if (host_group.rank() == 2) ::raise(SIGKILL);
        host_group.meet({});
      });
      if (!killed.starts_with(given.death)) {
        std::fprintf(stderr, "got '%s'\n", killed.c_str());
        return 1;
      }
      const std::string thrown = error_of_ranks({.size = 2}, [](HostGroup& host_group) {
        if (host_group.rank() == 1) throw Error("no");
        host_group.meet({});
      });
      return thrown == "rank 1: no" ? 0 : 2;
    });
    EXPECT_EQ(caller.wait(), 0);
    EXPECT_LT(Clock::now() - start, scaled(10s));
  }
}

// Called in the forked process: it cannot start any more threads.
void forbid_threads() {
  constexpr uid_t kNobody = 61234;  // the limit does not apply to root
  if (::getuid() == 0 && ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) != 0) ::_exit(77);
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_NPROC, &none);
}

TEST(ForkedWorkers, AnErrorInAForkedProcessDoesNotUnwindIntoTheCallersCode) {
  const NumberPipe caught;
  RankProcess caller([&] {
    ::pthread_atfork(nullptr, nullptr, forbid_threads);
    struct Destroyed {
      ~Destroyed() { caught.put(::getpid()); }
      const NumberPipe& caught;
    } const destroyed{caught};
    try {
      ForkedWorkers forked({.size = 2}, [](HostGroup&) {});
      forked.join();
    } catch (const WorkerError& error) {
      caught.put(::getpid());
      return std::string_view(error.what()).starts_with("rank 1: cannot start a thread") ? 0 : 1;
    }
    return 2;
  });
  const pid_t pid = caller.pid();
  EXPECT_EQ(caller.wait(), 0);
  EXPECT_EQ(caught.take(), pid);
  EXPECT_EQ(caught.take(), pid);
  EXPECT_TRUE(caught.empty());
}

TEST(ForkedWorkers, TwoGroupsAtATimeDoNotMeet) {
  if (kHasThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer: forks beside the first supervisor's thread";
  const auto work = [](HostGroup& host_group) {
    for (int i = 0; i < 100; ++i) host_group.meet({});
  };
  ForkedWorkers first({.size = 2}, work);
  ForkedWorkers second({.size = 3}, work);
  work(second.host_group());
  work(first.host_group());
  second.join();
  first.join();
}

// The kind of the failure of rank 1, which runs `work`.
FailureKind kind_of_failure(const std::function<void(HostGroup&)>& work) {
  ForkedWorkers forked({.size = 2, .timeout = scaled(500ms)}, work);
  EXPECT_THROW(forked.join(), WorkerError);
  EXPECT_EQ(forked.host_group().failure()->rank, 1);
  return forked.host_group().failure()->kind;
}

TEST(ForkedWorkers, AFailureHasAKind) {
  EXPECT_EQ(kind_of_failure([](HostGroup&) { throw DataError("image 7"); }), FailureKind::kError);
  EXPECT_EQ(kind_of_failure([](HostGroup&) { throw ConfigError("lr: -1"); }), FailureKind::kConfig);
  EXPECT_EQ(kind_of_failure([](HostGroup&) { throw std::bad_alloc(); }), FailureKind::kOutOfMemory);
  EXPECT_EQ(kind_of_failure([](HostGroup&) { throw 7; }), FailureKind::kError);
  EXPECT_EQ(kind_of_failure([](HostGroup&) { ::raise(SIGKILL); }), FailureKind::kLost);
  EXPECT_EQ(kind_of_failure([](HostGroup&) { ::_exit(0); }), FailureKind::kLost);
  EXPECT_EQ(kind_of_failure([](HostGroup&) { hang(); }), FailureKind::kHang);
}

TEST(ForkedWorkers, AreNamedAfterTheirRanks) {
  const pid_t caller = ::getpid();
  ForkedWorkers forked({.size = 3, .first_rank = 6, .timeout = kLimit}, [](HostGroup& host_group) {
    host_group.meet({});
    host_group.meet({});
  });
  forked.host_group().meet({});
  for (const int rank : {1, 2}) {
    const std::string folder = fmt::format("/proc/{}/", forked.host_group().pid(rank));
    const std::string name = fmt::format("lockstep-rank-{}", 6 + rank);
    EXPECT_EQ(read_file(folder + "comm"), name + "\n");
    EXPECT_EQ(read_file(folder + "cmdline").substr(0, name.size() + 1), name + '\0');
  }
  EXPECT_EQ(read_file(fmt::format("/proc/{}/cmdline", caller)).find("lockstep-rank"),
            std::string::npos);
  forked.host_group().meet({});
  forked.join();
}

TEST(ForkedWorkers, CanBeEndedAtOnce) {
  Lines lines;
  ForkedWorkers forked({.size = 4, .timeout = kLimit, .on_line = lines.collector()},
                       [](HostGroup& host_group) {
                         std::printf("here\n");
                         host_group.meet({});
                         if (host_group.rank() == 1) throw Error("no");
                         hang();
                       });
  forked.host_group().meet({});
  EXPECT_THROW(forked.host_group().meet({}), WorkerError);
  const auto start = Clock::now();
  forked.end_now();
  EXPECT_LT(Clock::now() - start, scaled(500ms));
  EXPECT_FALSE(has_children());
  EXPECT_EQ(forked.host_group().failure()->reason, "no");
  for (const int rank : {1, 2, 3}) EXPECT_THAT(lines.of(rank), ElementsAre("here"));
}

// A failure is the caller's business: nothing is printed, and the caller is not ended.
TEST(ForkedWorkers, ACallerThatRecoversIsLeftAlone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  RankProcess caller([&] {
    ::dup2(writing.get(), STDERR_FILENO);
    end_on_failure(3);
    ForkedWorkers forked({.size = 3, .timeout = kLimit, .recovers = true},
                         [](HostGroup& host_group) {
                           if (host_group.rank() == 1) throw Error("no");
                           hang();
                         });
    // The caller is in a batch that is longer than all grace periods.
    if (!eventually([&] { return forked.host_group().failure().has_value(); })) return 1;
    std::this_thread::sleep_for(2500ms);
    return 0;
  });
  writing = FileDescriptor();
  EXPECT_EQ(caller.wait(), 0);
  char bytes[100] = {};
  EXPECT_EQ(::read(reading.get(), bytes, sizeof bytes - 1), 0) << bytes;
}

TEST(ForkedWorkers, ACallerThatRecoversMayFinishWorkThatItDoesAlone) {
  RankProcess caller([&] {
    ForkedWorkers forked({.size = 2, .timeout = 300ms, .recovers = true},
                         [](HostGroup&) { throw Error("no"); });
    forked.host_group().set_late_reason(HostGroup::LateReason::kAlone);
    std::this_thread::sleep_for(1s);
    return forked.host_group().failure() ? 0 : 2;
  });
  EXPECT_EQ(caller.wait(), 0);
}

TEST(ForkedWorkers, ACallerThatHangsForGoodIsEndedAlsoIfItRecovers) {
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    ForkedWorkers forked({.size = 2, .timeout = 300ms, .recovers = true},
                         [](HostGroup&) { throw Error("no"); });
    hang();
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_EQ(caller.wait(), 1);
  EXPECT_LT(Clock::now() - start, scaled(4s));
}

TEST(ForkedWorkers, ALackOfProcessesSaysHowManyThereCanBe) {
  RankProcess caller([&] {
    constexpr uid_t kNobody = 61236;  // the limit does not apply to root
    if (::getuid() == 0 && ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) != 0) return 77;
    const rlimit few{.rlim_cur = 6, .rlim_max = 6};
    ::setrlimit(RLIMIT_NPROC, &few);
    try {
      ForkedWorkers forked({.size = 20, .timeout = kLimit}, [](HostGroup&) { hang(); });
    } catch (const ForkError& error) {
      if (!std::string_view(error.what()).starts_with("cannot fork worker ")) return 1;
      if (error.possible() < 2 || error.possible() > 6) return 2;
      return has_children() ? 3 : 0;
    }
    return 4;
  });
  EXPECT_EQ(caller.wait(), 0);
}

}  // namespace
}  // namespace lockstep::process
