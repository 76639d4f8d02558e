#include "lockstep/comm/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lockstep/base/warn.h"
#include "tests/comm/collectives.h"
#include "tests/comm/free_port.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

struct Apart {
  int size = 2;
  std::string backend = "auto";
  std::chrono::milliseconds timeout = kLimit;
};

// Ranks that were started separately: rank 0 in this process, each other rank in a separate one.
class WorldTest : public ::testing::Test {
 protected:
  std::unique_ptr<World> meet(int rank, const Apart& options) {
    return World::meet(
        {.topology = {.rank = rank, .world_size = options.size}, .port = port_, .token = "secret"},
        {.backend = options.backend, .timeout = options.timeout});
  }

  void run(const Apart& options, const std::function<void(Communicator&)>& body) {
    for (int rank = 1; rank < options.size; ++rank) {
      others_.emplace_back([=, this] {
        const int before = failed_expectations();
        const auto world = meet(rank, options);
        body(world->communicator());
        return failed_expectations() - before;
      });
    }
    const auto world = meet(0, options);
    body(world->communicator());
  }

  void expect_all_end_well() {
    for (RankProcess& other : others_) EXPECT_EQ(other.wait(), 0);
  }

  int port_ = free_port();
  std::vector<RankProcess> others_;
};

TEST_F(WorldTest, ProcessesOfOneHostShareMemory) {
  run({.size = 3}, [](Communicator& comm) {
    EXPECT_EQ(comm.name(), "shm");
    EXPECT_EQ(comm.topology().local_size, 3);
    check_collectives(comm);
  });
  expect_all_end_well();
}

TEST_F(WorldTest, GlooWhereItIsAskedFor) {
  run({.size = 2, .backend = "gloo"}, [](Communicator& comm) {
    EXPECT_EQ(comm.name(), "gloo");
    EXPECT_EQ(comm.topology().local_rank, comm.rank());
    check_collectives(comm);
  });
  expect_all_end_well();
}

TEST_F(WorldTest, AProcessWithAnotherTokenIsTurnedAwayAndTheRanksConnect) {
  RankProcess intruder([&] {
    const std::string text = message_of<CommError>([&] {
      World::meet({.topology = {.rank = 1, .world_size = 2}, .port = port_, .token = "guessed"},
                  {.timeout = kLimit});
    });
    return text.find("turned away") != std::string::npos ? 0 : 1;
  });
  // The ranks wait for the intruder, so that it does not start too late to be turned away.
  run({.size = 2}, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      EXPECT_EQ(intruder.wait(), 0);
    }
    comm.barrier();
  });
  expect_all_end_well();
}

TEST_F(WorldTest, TheSameProcessesMeetAgain) {
  const auto body = [&](int rank) {
    for (const std::string backend : {"auto", "gloo", "shm", "auto"}) {
      const auto world = meet(rank, {.size = 2, .backend = backend});
      const torch::Tensor tensor = torch::ones(3);
      world->communicator().all_reduce(tensor);
      if (tensor.sum().item<float>() != 6) return 1;
    }
    return 0;
  };
  RankProcess other([&] { return body(1); });
  EXPECT_EQ(body(0), 0);
  EXPECT_EQ(other.wait(), 0);
}

TEST_F(WorldTest, AKilledProcessIsNamed) {
  for (const std::string backend : {"auto", "gloo"}) {
    const auto start = Clock::now();
    EXPECT_THAT(message_of<WorkerError>([&] {
                  run({.size = 3, .backend = backend}, [](Communicator& comm) {
                    comm.set_progress(2, 3);
                    comm.barrier();
                    if (comm.rank() == 1) ::raise(SIGKILL);
                    if (comm.rank() == 2) {
                      message_of<Error>([&] { comm.all_reduce(torch::ones(10)); });
                      return;
                    }
                    comm.all_reduce(torch::ones(10));
                  });
                }),
                HasSubstr("rank 1"));
    EXPECT_LT(Clock::now() - start, scaled(3s));
    EXPECT_EQ(others_.at(0).wait(), -SIGKILL);
    EXPECT_EQ(others_.at(1).wait(), 0);
    others_.clear();
  }
}

TEST_F(WorldTest, ARankThatThrowsIsNamed) {
  for (const std::string backend : {"auto", "gloo"}) {
    EXPECT_THAT(message_of<WorkerError>([&] {
                  run({.size = 2, .backend = backend}, [](Communicator& comm) {
                    comm.barrier();
                    if (comm.rank() == 1) throw Error("only the output of this process shows this");
                    comm.barrier();
                  });
                }),
                "rank 1: ended by an exception");
    EXPECT_EQ(others_.at(0).wait(), 100);
    others_.clear();
  }
}

// A destructor that runs during stack unwinding may make and use a world. The exception is then not
// a failure of that world.
TEST_F(WorldTest, AnotherExceptionUnderWayIsNoFailure) {
  RankProcess other([&] {
    struct MeetsWhenDestroyed {
      std::function<void()> meet;
      ~MeetsWhenDestroyed() { meet(); }
    };
    try {
      const MeetsWhenDestroyed meets{[&] { meet(1, {.size = 2})->communicator().barrier(); }};
      throw Error("something else");
    } catch (const Error&) {
      return 0;
    }
  });
  const auto world = meet(0, {.size = 2});
  world->communicator().barrier();
  EXPECT_EQ(other.wait(), 0);
  EXPECT_EQ(message_of<WorkerError>([&] { world->communicator().check(); }), "");
}

// A process has two worlds at a time, both made at the same address.
TEST_F(WorldTest, TheSameProcessesMeetWhileTheyAreTogether) {
  const auto body = [&](int rank) {
    const auto world = meet(rank, {.size = 2});
    const auto another = meet(rank, {.size = 2});
    world->communicator().barrier();
    another->communicator().barrier();
    return 0;
  };
  RankProcess other([&] { return body(1); });
  EXPECT_EQ(body(0), 0);
  EXPECT_EQ(other.wait(), 0);
}

// Shared memory cannot be made if the process may not make files larger.
TEST_F(WorldTest, AHostWithoutSharedMemoryTellsItsRanksAtOnce) {
  const auto body = [&](int rank) {
    if (rank == 0) {
      const rlimit none{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
      ::signal(SIGXFSZ, SIG_IGN);
      ::setrlimit(RLIMIT_FSIZE, &none);
    }
    const auto start = Clock::now();
    const auto world = meet(rank, {.size = 2});
    world->communicator().barrier();
    if (world->communicator().name() != "gloo") return 1;
    return Clock::now() - start < kLimit / 4 ? 0 : 2;
  };
  RankProcess one([&] { return body(1); });
  RankProcess zero([&] { return body(0); });
  EXPECT_EQ(zero.wait(), 0);
  EXPECT_EQ(one.wait(), 0);
}

TEST_F(WorldTest, AnUnknownBackendIsRefusedBeforeAnyWait) {
  // nccl_test.cpp has nccl.
  EXPECT_THAT(message_of<ConfigError>([&] { meet(0, {.backend = "mpi"}); }),
              AllOf(HasSubstr("got 'mpi'"), HasSubstr("has no such backend")));
  EXPECT_THAT(message_of<ConfigError>([&] { meet(0, {.backend = "glue"}); }),
              AllOf(HasSubstr("auto, shm"), HasSubstr("gloo"), HasSubstr("got 'glue'")));
}

TEST_F(WorldTest, AnOrderOfAddingIsCheckedAndUsedWhereThereIsAChoice) {
  EXPECT_THAT(message_of<ConfigError>([] { check_reduction("quick"); }),
              HasSubstr("reduction: expected ordered or fast, got 'quick'"));
  EXPECT_NO_THROW(check_device("nccl", torch::Device(torch::kCUDA, 0)));
  EXPECT_NO_THROW(check_device("auto", torch::kCPU));
  EXPECT_THAT(message_of<ConfigError>([] { check_device("nccl", torch::kCPU); }),
              AllOf(HasSubstr("backend: nccl"), HasSubstr("'cpu'"), HasSubstr("use auto")));
  // With shm alone, sums are always ordered.
  std::vector<std::string> warnings;
  const auto before =
      set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  run_ranks(2, [](process::HostGroup& host_group) {
    const auto world = World::of_host_group(host_group, {.backend = "shm", .reduction = "fast"});
    check_sum_parts(world->communicator());
  });
  set_warning_handler(before);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("reduction: fast has no effect without nccl"));
}

// Two programs, each with forked workers, as they would run on two hosts.
class Programs : public WorldTest {
 protected:
  void run_program(int first_rank, const std::string& backend,
                   const std::function<void(Communicator&)>& body) {
    const auto work = [&](process::HostGroup& host_group) {
      const auto world = World::meet({.topology = {.rank = first_rank + host_group.rank(),
                                                   .world_size = 4,
                                                   .local_rank = host_group.rank(),
                                                   .local_size = 2},
                                      .port = port_,
                                      .token = "secret"},
                                     {.backend = backend, .timeout = timeout_}, &host_group);
      body(world->communicator());
    };
    process::ForkedWorkers forked({.size = 2, .first_rank = first_rank, .timeout = timeout_},
                                  [&](process::HostGroup& host_group) {
                                    const int before = failed_expectations();
                                    work(host_group);
                                    if (failed_expectations() > before)
                                      throw Error("an expectation failed, see above");
                                  });
    work(forked.host_group());
    forked.join();
  }

  std::chrono::milliseconds timeout_ = kLimit;
};

TEST_F(Programs, WithWorkersOfTheirOwnMakeTwoLevels) {
  const auto body = [](Communicator& comm) {
    EXPECT_EQ(comm.name(), "shm+gloo");
    EXPECT_EQ(comm.topology().local_rank, comm.rank() % 2);
    EXPECT_EQ(comm.topology().local_size, 2);
    check_collectives(comm);
  };
  RankProcess other([&] {
    run_program(2, "auto", body);
    return 0;
  });
  run_program(0, "auto", body);
  EXPECT_EQ(other.wait(), 0);
}

TEST_F(Programs, AKilledWorkerIsNamedByBothAndWithItsSignalByItsOwn) {
  for (const std::string backend : {"auto", "gloo"}) {
    const auto body = [](Communicator& comm) {
      comm.set_progress(1, 8);
      comm.barrier();
      if (comm.rank() == 3) ::raise(SIGKILL);
      comm.all_reduce(torch::ones(1000));
    };
    RankProcess other([&] {
      return message_of<WorkerError>([&] {
               run_program(2, backend, body);
             }).find("rank 3 (in epoch 1, batch 8): its process was killed by signal 9") !=
                     std::string::npos
                 ? 0
                 : 1;
    });
    const auto start = Clock::now();
    const std::string text = message_of<WorkerError>([&] { run_program(0, backend, body); });
    EXPECT_THAT(text, HasSubstr("rank 3"));
    EXPECT_LT(Clock::now() - start, scaled(3s));
    EXPECT_EQ(other.wait(), 0);
  }
}

// Rank 3 hangs. Rank 2 is late and waits for rank 3. The error must name neither rank 2 nor rank 0.
TEST_F(Programs, ARankOfAnotherHostThatHangsIsNamedByAll) {
  timeout_ = 1500ms;
  const auto body = [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) std::this_thread::sleep_for(700ms);
    if (comm.rank() == 3) std::this_thread::sleep_for(6s);
    comm.all_reduce(torch::ones(1000));
  };
  // Both programs run in separate processes: Gloo's threads still run after the failure, and later
  // tests fork.
  const auto names_rank_3 = [&](int first_rank) {
    const std::string text = message_of<Error>([&] { run_program(first_rank, "auto", body); });
    std::fprintf(stderr, "rank %d says: %s\n", first_rank, text.c_str());
    return text.starts_with("rank 3") ? 0 : 1;
  };
  RankProcess other([&] { return names_rank_3(2); });
  RankProcess zero([&] { return names_rank_3(0); });
  EXPECT_EQ(zero.wait(), 0);
  EXPECT_EQ(other.wait(), 0);
}

// Rank 0 works for longer than the time limit, as if it saved a file, and uses AloneScope.
TEST_F(Programs, LongWorkOfRank0AloneDoesNotEndTheRun) {
  timeout_ = 1500ms;
  const auto body = [](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      const AloneScope alone(comm);
      std::this_thread::sleep_for(2500ms);
    }
    comm.all_reduce(torch::ones(1000));
  };
  for (const std::string backend : {"auto", "gloo"}) {
    RankProcess other([&] {
      run_program(2, backend, body);
      return 0;
    });
    EXPECT_EQ(message_of<Error>([&] { run_program(0, backend, body); }), "") << backend;
    EXPECT_EQ(other.wait(), 0) << backend;
  }
}

TEST_F(Programs, CannotShareMemory) {
  const auto refused = [&](int first_rank) {
    return message_of<Error>([&] { run_program(first_rank, "shm", [](Communicator&) {}); });
  };
  RankProcess other([&] {
    return refused(2).find("shm is for the ranks of one host") != std::string::npos ? 0 : 1;
  });
  EXPECT_THAT(refused(0), HasSubstr("shm is for the ranks of one host, but the ranks are on 2"));
  EXPECT_EQ(other.wait(), 0);
}

TEST(World, OfAHostGroup) {
  run_ranks(2, [](process::HostGroup& host_group) {
    for (const std::string backend : {"auto", "shm", "gloo", "auto"}) {
      const auto world = World::of_host_group(host_group, {.backend = backend, .timeout = kLimit});
      EXPECT_EQ(world->communicator().name(), backend == "gloo" ? "gloo" : "shm");
      world->communicator().barrier();
    }
  });
  EXPECT_THAT(error_of_ranks({.size = 2},
                             [](process::HostGroup& host_group) {
                               World::of_host_group(host_group, {.backend = "tcp"});
                             }),
              HasSubstr("got 'tcp'"));
}

TEST(World, OfALauncher) {
  const std::string run = "world-" + std::to_string(::getpid());
  const auto body = [&](int rank) {
    const auto world = World::attach(
        {.launcher = process::Launcher::kOpenMpi,
         .topology = {.rank = rank, .world_size = 2, .local_rank = rank, .local_size = 2},
         .local_size_known = true,
         .run_id = run},
        {.timeout = kLimit});
    world->communicator().barrier();
    return world->communicator().name() == "shm" ? 0 : 1;
  };
  RankProcess other([&] { return body(1); });
  EXPECT_EQ(body(0), 0);
  EXPECT_EQ(other.wait(), 0);
}

TEST(World, OfALauncherThatStartedOne) {
  const auto world = World::attach({}, {});
  EXPECT_EQ(world->communicator().name(), "local");
}

}  // namespace
}  // namespace lockstep::comm
