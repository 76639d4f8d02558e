#include "lockstep/comm/shared.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/comm/collectives.h"
#include "tests/support/rank_process.h"
#include "tests/support/ranks.h"
#include "tests/support/slowdown.h"

namespace lockstep::comm {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class SharedSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Shared, SharedSizes, ::testing::Values(1, 2, 3, 4));

TEST_P(SharedSizes, DoesAllCollectives) {
  run_ranks(GetParam(), [](process::HostGroup& host_group) {
    Shared comm(host_group);
    EXPECT_EQ(comm.rank(), host_group.rank());
    EXPECT_EQ(comm.size(), host_group.size());
    EXPECT_EQ(comm.name(), "shm");
    check_collectives(comm);
  });
}

TEST(Shared, MoreRanksThanCores) {
  const auto start = Clock::now();
  run_ranks(8, [](process::HostGroup& host_group) {
    Shared comm(host_group);
    check_all_reduce(comm);
    check_votes(comm);
    check_sum_parts(comm);
  });
  EXPECT_LT(Clock::now() - start, scaled(15s));
}

// The pieces of one operation follow the pieces of another without a pause.
TEST(Shared, ManyOperationsInARowDoNotDisturbEachOther) {
  run_ranks(3, [](process::HostGroup& host_group) {
    Shared comm(host_group);
    for (int round = 0; round < 300; ++round) {
      const torch::Tensor sum = torch::full({round * 37}, comm.rank() + round, torch::kFloat32);
      comm.all_reduce(sum);
      ASSERT_TRUE(sum.equal(torch::full_like(sum, 3.0F * static_cast<float>(round) + 3.0F)));
      const torch::Tensor from = torch::full({round * 11}, comm.rank(), torch::kInt32);
      comm.broadcast(from, round % 3);
      ASSERT_TRUE(from.equal(torch::full_like(from, round % 3)));
      const auto all = comm.all_gather_bytes(std::to_string(comm.rank() * 1000 + round));
      ASSERT_EQ(all[2], std::to_string(2000 + round));
    }
  });
}

TEST(Shared, DifferentOperationsAreTold) {
  EXPECT_THAT(error_of_ranks({.size = 2},
                             [](process::HostGroup& host_group) {
                               Shared comm(host_group);
                               if (comm.rank() == 0) {
                                 comm.all_reduce(torch::ones(10));
                               } else {
                                 comm.barrier();
                               }
                             }),
              AllOf(HasSubstr("'all_reduce of 40 bytes (sum of Float)'"), HasSubstr("'barrier'"),
                    HasSubstr("all ranks must do the same")));
}

TEST(Shared, DifferentShapesAreTold) {
  EXPECT_THAT(error_of_ranks({.size = 2},
                             [](process::HostGroup& host_group) {
                               Shared comm(host_group);
                               comm.all_reduce(torch::ones(10 + comm.rank()));
                             }),
              AllOf(HasSubstr("'all_reduce of 40 bytes (sum of Float)'"),
                    HasSubstr("'all_reduce of 44 bytes (sum of Float)'")));
}

TEST(Shared, DifferentTypesAreTold) {
  EXPECT_THAT(error_of_ranks({.size = 2},
                             [](process::HostGroup& host_group) {
                               Shared comm(host_group);
                               comm.all_gather(comm.rank() == 0 ? torch::ones({2}, torch::kFloat32)
                                                                : torch::ones({2}, torch::kInt64));
                             }),
              AllOf(HasSubstr("gather: rank"), HasSubstr("sent"), HasSubstr("Long")));
}

TEST(Shared, ARankThatDoesNotComeIsNamedWithTheOperation) {
  const auto start = Clock::now();
  EXPECT_THAT(
      error_of_ranks({.size = 3, .timeout = 500ms},
                     [](process::HostGroup& host_group) {
                       Shared comm(host_group);
                       comm.set_progress(4, 2);
                       comm.barrier();
                       if (comm.rank() == 1) std::this_thread::sleep_for(10s);
                       comm.all_reduce(torch::ones(100));
                     }),
      AllOf(HasSubstr(
                "rank 1 (in epoch 4, batch 2): all_reduce of 400 bytes (sum of Float): waited "),
            ContainsRegex("waited 0\\.[56] s:"), HasSubstr("ranks 0, 2 arrived, rank 1 did not")));
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(Shared, AnAbortReachesTheOthers) {
  EXPECT_EQ(error_of_ranks({.size = 3},
                           [](process::HostGroup& host_group) {
                             Shared comm(host_group);
                             if (comm.rank() == 2) comm.abort("the disk is full");
                             comm.barrier();
                           }),
            "rank 2: the disk is full");
}

TEST(Shared, ACheckThrowsWhatIsKnownWithoutWaiting) {
  run_ranks(1, [](process::HostGroup& host_group) {
    const Shared comm(host_group);
    const_cast<Shared&>(comm).check();
  });
  EXPECT_EQ(error_of_ranks({.size = 2},
                           [](process::HostGroup& host_group) {
                             Shared comm(host_group);
                             if (comm.rank() == 1) throw Error("out of memory");
                             for (const auto start = Clock::now(); Clock::now() - start < 10s;) {
                               comm.check();
                             }
                           }),
            "rank 1: out of memory");
}

// No process watches over these ranks.
TEST(Shared, ACheckFindsARankThatWasKilled) {
  const auto memory = std::make_shared<process::HostGroupMemory>(2);
  RankProcess other([&] {
    process::HostGroup host_group(memory, {.rank = 1});
    host_group.join();
    Shared(host_group).barrier();
    return wait_for_ever();
  });
  process::HostGroup host_group(memory, {.rank = 0, .timeout = kLimit});
  host_group.join();
  Shared comm(host_group);
  comm.barrier();
  comm.check();
  other.send(SIGKILL);
  EXPECT_TRUE(eventually([&] {
    return message_of<WorkerError>([&] { comm.check(); }) ==
           "rank 1: its process ended without reporting an error";
  }));
}

TEST(Shared, ARankThatIsKilledInTheMiddleIsNamed) {
  const auto start = Clock::now();
  EXPECT_THAT(error_of_ranks({.size = 3},
                             [](process::HostGroup& host_group) {
                               Shared comm(host_group);
                               const torch::Tensor large = torch::ones({4'000'000});
                               for (int i = 0; i < 1000; ++i) {
                                 if (comm.rank() == 2 && i == 3) ::raise(SIGKILL);
                                 comm.all_reduce(large);
                               }
                             }),
              HasSubstr("rank 2: its process was killed by signal 9"));
  EXPECT_LT(Clock::now() - start, scaled(3s));
}

TEST(Shared, MemoryOutlivesItsMaker) {
  run_ranks(2, [](process::HostGroup& host_group) {
    torch::Tensor memory;
    {
      Shared comm(host_group);
      memory = *comm.shared_memory(4);
      comm.barrier();
    }
    if (host_group.rank() == 1) memory.fill_(7);
    host_group.meet({});
    EXPECT_EQ(memory.sum().item<std::int64_t>(), 28);
  });
}

TEST(Shared, AnAbortHasAKind) {
  const auto work = [](process::HostGroup& host_group) {
    Shared comm(host_group);
    EXPECT_FALSE(comm.failure());
    comm.barrier();
    comm.set_progress(2, 5);
    if (comm.rank() == 1) comm.abort("the disk is full", process::FailureKind::kConfig);
    comm.barrier();
  };
  process::ForkedWorkers forked({.size = 2, .first_rank = 4}, work);
  EXPECT_THROW(work(forked.host_group()), WorkerError);
  const auto failure = Shared(forked.host_group()).failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 5) << "the rank in the run";
  EXPECT_EQ(failure->reason, "the disk is full");
  EXPECT_EQ(failure->kind, process::FailureKind::kConfig);
  EXPECT_EQ(failure->epoch, 2);
  EXPECT_EQ(failure->batch, 5);
}

}  // namespace
}  // namespace lockstep::comm
