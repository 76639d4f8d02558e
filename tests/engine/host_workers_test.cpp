#include "lockstep/engine/host_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
