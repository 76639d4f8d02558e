#include "lockstep/engine/host_workers.h"

#include <csignal>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "lockstep/comm/shared.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(HostWorkers, AllRunTheWorkAndTheCallerIsRank0) {
  int here = -1;
  run_host_workers({.workers = 3, .timeout = std::chrono::seconds(20)},
                   [&](process::HostGroup& host_group) {
                     const Topology place = topology_of(host_group);
                     comm::Shared all(host_group);
                     const auto ranks = all.vote(static_cast<std::uint64_t>(place.rank));
                     all.barrier();
                     if (!place.is_primary()) return;
                     here = place.world_size;
                     EXPECT_THAT(ranks, testing::ElementsAre(0U, 1U, 2U));
                   });
  EXPECT_EQ(here, 3) << "the work of rank 0 is done in this process";
}

TEST(HostWorkers, ThrowWhatTheCallersWorkThrew) {
  const auto fail_on = [](int rank) {
    run_host_workers({.workers = 2, .timeout = std::chrono::seconds(20)},
                     [&](process::HostGroup& host_group) {
                       if (host_group.rank() == rank) throw DataError("sample 7 is rotten");
                     });
  };
  EXPECT_THROW(fail_on(0), DataError);
  EXPECT_THAT([&] { fail_on(1); }, testing::ThrowsMessage<WorkerError>(testing::AllOf(
                                       HasSubstr("rank 1"), HasSubstr("sample 7 is rotten"))));
}

// The second round is a second training in one program: by then this process has used autograd, and
// its threads run.
TEST(HostWorkers, AttemptsComputeAlsoInASecondTraining) {
  for (int round = 0; round < 2; ++round) {
    int attempts = 0;
    bool done = false;
    const auto work = [&](process::HostGroup& host_group) {
      comm::Shared all(host_group);
      const torch::Tensor x = torch::ones({200, 200}, torch::requires_grad());
      x.mm(x).sum().backward();
      const torch::Tensor sum = x.grad().clone();
      all.all_reduce(sum);
      if (sum[0][0].item<float>() != 400.0F * static_cast<float>(host_group.size())) {
        throw Error("wrong sum");
      }
      if (host_group.rank() == 0 && ++attempts < 3) throw Error("attempt {}", attempts);
      done = true;
      all.barrier();
    };
    std::vector<std::string> failures;
    const auto try_again = [&](const Engine::AttemptFailure& failure) {
      failures.push_back(failure.rank->reason);
      return true;
    };
    run_host_workers({.workers = 3, .timeout = std::chrono::seconds(20)}, work,
                     {.try_again = try_again, .is_done = [&] { return done; }});
    EXPECT_TRUE(done);
    EXPECT_THAT(failures, testing::ElementsAre("attempt 1", "attempt 2"));
  }
}

// After rank 0's work the other workers are not needed.
TEST(HostWorkers, AFailureAfterTheWorkDoesNotMatter) {
  bool done = false;
  const auto work = [&](process::HostGroup& host_group) {
    host_group.meet({});
    if (host_group.rank() != 0) std::raise(SIGKILL);
    done = true;
    host_group.meet({});
  };
  int failures = 0;
  run_host_workers({.workers = 2, .timeout = std::chrono::seconds(20)}, work,
                   {.try_again =
                        [&](const Engine::AttemptFailure&) {
                          ++failures;
                          return false;
                        },
                    .is_done = [&] { return done; }});
  EXPECT_EQ(failures, 0);
}

TEST(HostWorkers, TheFailureOfAnAttemptHasItsRankAndKind) {
  for (const int rank : {0, 1}) {
    const auto work = [&](process::HostGroup& host_group) {
      if (host_group.rank() == rank) throw ConfigError("lr: expected a positive number, got -1");
      host_group.meet({});
    };
    std::optional<process::RankFailure> found;
    const auto try_again = [&](const Engine::AttemptFailure& failure) {
      found = failure.rank;
      return false;
    };
    EXPECT_THROW(run_host_workers({.workers = 2, .timeout = std::chrono::seconds(20)}, work,
                                  {.try_again = try_again, .is_done = [] { return false; }}),
                 Error);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, rank);
    EXPECT_EQ(found->kind, process::FailureKind::kConfig);
  }
}

TEST(OrReport, ReportsBeforeItThrows) {
  std::string reported;
  process::FailureKind reported_kind{};
  const auto report = [&](const std::string& reason, process::FailureKind kind) {
    reported = reason;
    reported_kind = kind;
  };
  EXPECT_THROW(or_report(report, [] { throw Error("broken"); }), Error);
  EXPECT_EQ(reported, "broken");
  EXPECT_EQ(reported_kind, process::FailureKind::kError);
  EXPECT_THROW(or_report(report, [] { throw ConfigError("workers: 0"); }), ConfigError);
  EXPECT_EQ(reported_kind, process::FailureKind::kConfig);
  EXPECT_THROW(or_report(report, [] { throw 3; }), int);
  EXPECT_THAT(reported, HasSubstr("no exception"));
  reported.clear();
  or_report(report, [] {});
  EXPECT_EQ(reported, "");
}

TEST(DefaultWorkers, AreAtLeastOne) {
  EXPECT_GE(default_workers(), 1);
}

}  // namespace
}  // namespace lockstep
