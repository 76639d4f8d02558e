#include "lockstep/process/crew.h"

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

// For ever, as far as a test is concerned.
void hang() {
  std::this_thread::sleep_for(kLimit);
}

TEST(Crew, TheCallerIsRankZeroAndEveryOtherRankIsAProcess) {
  for (const int size : {1, 2, 3, 4, 8}) {
    const auto seen = SharedMemory(64);
    run_ranks(size, [&](Team& team) {
      EXPECT_EQ(team.size(), size);
      seen.data()[team.rank()] = std::byte{1};
      team.meet({.word = static_cast<std::uint64_t>(::getpid())});
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(team.word(rank), static_cast<std::uint64_t>(team.pid(rank)));
        EXPECT_EQ(team.pid(rank) == ::getpid(), rank == team.rank());
      }
    });
    for (int rank = 0; rank < 8; ++rank) {
      EXPECT_EQ(std::to_integer<bool>(seen.data()[rank]), rank < size);
    }
    EXPECT_FALSE(has_children());
  }
}

TEST(Crew, MoreWorkersThanCoresTakeNotMuchLonger) {
  const auto start = Clock::now();
  run_ranks(8, [](Team& team) {
    for (int i = 0; i < 500; ++i) team.meet({});
  });
  EXPECT_LT(Clock::now() - start, scaled(5s));
}

TEST(Crew, NobodyIsNoCrew) {
  EXPECT_THAT(message_of<ConfigError>([] { Crew({.size = 0}, [](Team&) {}); }),
              HasSubstr("expected 1 or more, got 0"));
}

TEST(Crew, WhatAWorkerThrowsReachesTheOthers) {
  const auto start = Clock::now();
  const std::string text = error_of_ranks({.size = 3}, [](Team& team) {
    team.set_progress(1, 4);
    if (team.rank() == 1) throw DataError("image 7 is broken");
    team.meet({});
  });
  EXPECT_EQ(text, "rank 1 (in epoch 1, batch 4): image 7 is broken");
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_FALSE(has_children());
}

TEST(Crew, JoinThrowsWhatAWorkerThrew) {
  Crew crew({.size = 2}, [](Team& team) {
    team.meet({});
    throw 42;
  });
  crew.team().meet({});
  EXPECT_EQ(message_of<WorkerError>([&] { crew.join(); }),
            "rank 1: threw something that is no exception");
}

TEST(Crew, RanksAreNamedAsTheRunNamesThem) {
  Crew crew({.size = 2, .first_rank = 6}, [](Team&) { throw Error("no"); });
  EXPECT_EQ(message_of<WorkerError>([&] { crew.join(); }), "rank 7: no");
}

TEST(Crew, AKilledWorkerIsNamedWithItsSignal) {
  for (const int signal : {SIGKILL, SIGABRT}) {
    const auto start = Clock::now();
    const std::string text = error_of_ranks({.size = 3}, [&](Team& team) {
      team.meet({});
      team.set_progress(2, 9);
      if (team.rank() == 2) ::raise(signal);
      team.meet({});
      team.meet({});
    });
    EXPECT_THAT(text,
                AllOf(HasSubstr("rank 2 (in epoch 2, batch 9): its process was killed by signal " +
                                std::to_string(signal)),
                      HasSubstr(strsignal(signal))));
    EXPECT_LT(Clock::now() - start, scaled(2s));
    EXPECT_FALSE(has_children());
  }
}

// The others are deep in a batch and do not look; they are ended.
TEST(Crew, WorkersThatDoNotSeeAFailureAreKilled) {
  const auto start = Clock::now();
  Crew crew({.size = 3}, [](Team& team) {
    if (team.rank() == 1) ::_exit(3);
    hang();
  });
  EXPECT_EQ(message_of<WorkerError>([&] { crew.join(); }), "rank 1: its process ended with code 3");
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_FALSE(has_children());
}

TEST(Crew, AStoppedWorkerIsNamedPastTheLimitAndAllAreGone) {
  const auto start = Clock::now();
  std::vector<pid_t> pids;
  const std::string text = error_of_ranks({.size = 3, .timeout = 500ms}, [&](Team& team) {
    team.meet({});
    for (int rank = 0; rank < 3; ++rank) pids.push_back(team.pid(rank));
    if (team.rank() == 1) ::raise(SIGSTOP);
    team.meet({.operation = Operation::kAllReduce, .detail = 80});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("rank 1: all_reduce of 80 bytes: waited 0.5 s"),
                          HasSubstr("ranks 0, 2 came, rank 1 did not")));
  EXPECT_LT(Clock::now() - start, scaled(3s));
  EXPECT_FALSE(has_children());
  EXPECT_FALSE(is_running(pids.at(1)));
  EXPECT_FALSE(is_running(pids.at(2)));
}

TEST(Crew, AWorkerThatDoesNotEndAfterTheCallerIsDoneIsNamed) {
  Crew crew({.size = 3, .timeout = 300ms}, [](Team& team) {
    if (team.rank() == 2) hang();
  });
  const auto start = Clock::now();
  EXPECT_EQ(message_of<WorkerError>([&] { crew.join(); }),
            "rank 2: the end: waited 0.3 s for it after rank 0 was done");
  EXPECT_LT(Clock::now() - start, scaled(3s));
  EXPECT_FALSE(has_children());
}

TEST(Crew, ACallerThatThrowsLeavesNobody) {
  const auto start = Clock::now();
  EXPECT_THAT(error_of_ranks({.size = 4},
                             [](Team& team) {
                               team.meet({});
                               if (team.rank() == 0) throw Error("enough");
                               hang();
                             }),
              "enough");
  EXPECT_LT(Clock::now() - start, scaled(1s));
  EXPECT_FALSE(has_children());
}

// The body of a process that has workers of its own, and tells who they are.
void put_pids(const NumberPipe& pids, Team& team) {
  team.meet({});
  if (team.rank() != 0) return;
  for (int rank = 1; rank < team.size(); ++rank) pids.put(team.pid(rank));
}

TEST(Crew, WorkersDieWithACallerThatWasKilled) {
  const NumberPipe pids;
  RankProcess caller([&] {
    run_ranks(3, [&](Team& team) {
      put_pids(pids, team);
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

TEST(Crew, ACallerThatIsStoppedPastTheLimitIsEnded) {
  const NumberPipe pids;
  const auto start = Clock::now();
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    run_ranks({.size = 3, .timeout = 300ms}, [&](Team& team) {
      put_pids(pids, team);
      if (team.rank() == 0) ::raise(SIGSTOP);
      team.meet({});
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

// Over TCP a worker may notice its own failure first. The caller is stopped all the same.
TEST(Crew, AStoppedCallerIsEndedWhosesoeverFailureWasRecorded) {
  const auto start = Clock::now();
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    run_ranks({.size = 2, .timeout = 60s}, [&](Team& team) {
      if (team.rank() == 0) ::raise(SIGSTOP);
      const PeerProcess zero(team.pid(0));
      if (!eventually([&] { return zero.is_stopped(); })) return;
      throw CommError("the connection to rank 0 does not answer");
    });
    return 0;
  });
  EXPECT_EQ(caller.wait(), -SIGKILL);
  EXPECT_LT(Clock::now() - start, scaled(5s));
}

TEST(Crew, ACallerThatHangsAfterAFailureIsEnded) {
  const NumberPipe pids;
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    run_ranks({.size = 2, .timeout = 300ms}, [&](Team& team) {
      put_pids(pids, team);
      if (team.rank() == 1) throw Error("no");
      hang();
    });
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_EQ(caller.wait(), 1);
  EXPECT_LT(Clock::now() - start, scaled(4s));
}

TEST(Crew, ACallerWithNothingToPutAwayIsEndedWithinTwoSeconds) {
  RankProcess caller([&] {
    ::close(STDERR_FILENO);
    end_on_failure(3);
    run_ranks({.size = 3, .timeout = 60s}, [&](Team& team) {
      if (team.rank() == 1) throw Error("no");
      hang();
    });
    return 0;
  });
  const auto start = Clock::now();
  EXPECT_EQ(caller.wait(), 3);
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

// Lines by rank, as they come.
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

TEST(Crew, LinesOfWorkersComeWholeAndInOrder) {
  Lines lines;
  Crew crew({.size = 3, .on_line = lines.collector()}, [](Team& team) {
    const std::string name = "worker " + std::to_string(team.rank());
    std::cout << name << " says" << std::flush << " hello\n";
    std::printf("%s\n", std::string(200'000, 'x').c_str());  // more than a pipe holds
    std::fprintf(stderr, "\nand a last word");
  });
  crew.join();
  for (const int rank : {1, 2}) {
    EXPECT_THAT(lines.of(rank), ElementsAre("worker " + std::to_string(rank) + " says hello",
                                            std::string(200'000, 'x'), "", "and a last word"));
  }
}

TEST(Crew, LinesOfAWorkerThatWasKilledAreNotLost) {
  Lines lines;
  Crew crew({.size = 2, .first_rank = 4, .on_line = lines.collector()}, [](Team&) {
    std::printf("whole\n");
    std::fprintf(stderr, "half");
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_THROW(crew.join(), WorkerError);
  EXPECT_THAT(lines.of(5), ElementsAre("whole", "half"));
}

// A child of a worker may keep the pipe open.
TEST(Crew, AGrandchildThatOutlivesItsWorkerDoesNotHoldUpTheEnd) {
  Lines lines;
  const NumberPipe pids;
  const auto start = Clock::now();
  {
    Crew crew({.size = 2, .on_line = lines.collector()}, [&](Team&) {
      std::printf("before\n");
      const pid_t child = ::fork();
      if (child == 0) {
        hang();
        ::_exit(0);
      }
      pids.put(child);
      std::printf("after");
    });
    crew.join();
  }
  EXPECT_LT(Clock::now() - start, scaled(2s));
  EXPECT_THAT(lines.of(1), ElementsAre("before", "after"));
  ::kill(pids.take(), SIGKILL);
}

TEST(Crew, OutputBeforeTheForkIsPrintedOnce) {
  const NumberPipe unused;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor reading(ends[0]);
  FileDescriptor writing(ends[1]);
  RankProcess caller([&] {
    ::dup2(writing.get(), STDOUT_FILENO);
    std::printf("once ");
    std::cout << "only";
    run_ranks(3, [](Team& team) { team.meet({}); });
    return std::fflush(stdout);
  });
  writing = FileDescriptor();
  EXPECT_EQ(caller.wait(), 0);
  char bytes[100] = {};
  EXPECT_EQ(::read(reading.get(), bytes, sizeof bytes - 1), 9);
  EXPECT_STREQ(bytes, "once only");
}

TEST(Crew, NothingIsLeftOfFiftyCrews) {
  const TemporaryDirectory temporary;
  ::setenv("TMPDIR", temporary.path().c_str(), 1);
  const auto named_memory = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      count += entry.path().filename().string().find("lockstep") != std::string::npos;
    }
    return count;
  };
  run_ranks(2, [](Team& team) { team.meet({}); });  // whatever is opened once
  const auto descriptors = entries("/proc/self/fd");
  const auto threads = entries("/proc/self/task");
  const int memories = named_memory();
  Lines lines;
  for (int i = 0; i < 50; ++i) {
    Crew crew({.size = 3, .on_line = lines.collector()}, [&](Team& team) {
      std::printf("%d\n", i);
      team.meet({});
      if (i % 5 == 1) throw Error("no");
      if (i % 5 == 2) ::kill(::getpid(), SIGKILL);
    });
    message_of<Error>([&] { crew.team().meet({}); });
    if (i % 5 == 3) continue;  // and is destroyed
    message_of<Error>([&] { crew.join(); });
  }
  EXPECT_FALSE(has_children());
  EXPECT_EQ(entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(entries("/proc/self/task"), threads);
  EXPECT_EQ(named_memory(), memories);
  EXPECT_EQ(entries(temporary.path()), 0);
  ::unsetenv("TMPDIR");
}

TEST(Crew, AProbeThatFailsIsTriedAgainAndThenReported) {
  const SharedMemory memory(64);
  auto& probes = *reinterpret_cast<std::atomic<int>*>(memory.data());
  const CrewOptions options{.size = 2, .probe = [&] { return ++probes > 2; }};
  EXPECT_THAT(message_of<WorkerError>([&] { Crew(options, [](Team&) {}); }),
              AllOf(HasSubstr("cannot fork 1 workers"), HasSubstr("torchrun")));
  EXPECT_EQ(probes, 2);
  EXPECT_FALSE(has_children());
  Crew crew(options, [](Team& team) { team.meet({}); });
  crew.team().meet({});
  crew.join();
  EXPECT_EQ(probes, 3);
}

TEST(Crew, TheSecondWayToForkWorks) {
  const SharedMemory memory(64);
  auto& probes = *reinterpret_cast<std::atomic<int>*>(memory.data());
  Lines lines;
  Crew crew({.size = 2, .probe = [&] { return ++probes > 1; }, .on_line = lines.collector()},
            [](Team& team) {
              team.meet({.word = 7});
              std::printf("here\n");
            });
  crew.team().meet({});
  EXPECT_EQ(crew.team().word(1), 7U);
  crew.join();
  EXPECT_THAT(lines.of(1), ElementsAre("here"));
}

TEST(Crew, AProbeThatThrowsSaysWhy) {
  Crew crew({.size = 2, .probe = []() -> bool { throw Error("no GPU"); }}, [](Team&) {});
  EXPECT_EQ(message_of<WorkerError>([&] { crew.join(); }), "rank 1: no GPU");
  EXPECT_FALSE(has_children());
}

// The exit status of a worker is lost there: what it wrote to the shared memory tells.
TEST(Crew, WorksWhereSomebodyElseReapsTheWorkers) {
  struct Case {
    const char* name;
    void (*action)(int);
    const char* death;  // what is known about a killed worker
  };
  const auto reap_all = [](int) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  };
  const Case cases[] = {
      {"SIGCHLD is ignored", SIG_IGN, "rank 2: its process ended before its work was done; how"},
      // Either this handler or the crew is first.
      {"the program reaps every child", reap_all, "rank 2: its process "}};
  for (const Case& given : cases) {
    SCOPED_TRACE(given.name);
    const auto start = Clock::now();
    RankProcess caller([&] {
      ::signal(SIGCHLD, given.action);
      run_ranks(3, [](Team& team) { team.meet({}); });
      const std::string killed = error_of_ranks({.size = 3}, [](Team& team) {
        team.meet({});
        if (team.rank() == 2) ::raise(SIGKILL);
        team.meet({});
      });
      if (!killed.starts_with(given.death)) {
        std::fprintf(stderr, "got '%s'\n", killed.c_str());
        return 1;
      }
      const std::string thrown = error_of_ranks({.size = 2}, [](Team& team) {
        if (team.rank() == 1) throw Error("no");
        team.meet({});
      });
      return thrown == "rank 1: no" ? 0 : 2;
    });
    EXPECT_EQ(caller.wait(), 0);
    EXPECT_LT(Clock::now() - start, scaled(10s));
  }
}

// In the forked process only: it may have no more threads.
void forbid_threads() {
  constexpr uid_t kNobody = 61234;  // root may always have more
  if (::getuid() == 0 && ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) != 0) ::_exit(77);
  const rlimit none{.rlim_cur = 0, .rlim_max = 0};
  ::setrlimit(RLIMIT_NPROC, &none);
}

TEST(Crew, AnErrorInAForkedProcessDoesNotUnwindIntoTheCallersCode) {
  const NumberPipe caught;
  RankProcess caller([&] {
    ::pthread_atfork(nullptr, nullptr, forbid_threads);
    struct Destroyed {
      ~Destroyed() { caught.put(::getpid()); }
      const NumberPipe& caught;
    } const destroyed{caught};
    try {
      Crew crew({.size = 2}, [](Team&) {});
      crew.join();
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

TEST(Crew, TwoCrewsAtATimeDoNotMeet) {
  if (kHasThreadSanitizer) GTEST_SKIP() << "ThreadSanitizer: forks beside the first crew's thread";
  const auto work = [](Team& team) {
    for (int i = 0; i < 100; ++i) team.meet({});
  };
  Crew first({.size = 2}, work);
  Crew second({.size = 3}, work);
  work(second.team());
  work(first.team());
  second.join();
  first.join();
}

}  // namespace
}  // namespace lockstep::process
