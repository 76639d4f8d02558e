#include "lockstep/train/merge.h"

#include <gtest/gtest.h>

#include "lockstep/comm/shared.h"
#include "lockstep/metric/additive.h"
#include "tests/support/ranks.h"

namespace lockstep {
namespace {

TEST(Merge, AMetricIsThatOfAllRanksOnAllRanksAndNothingIsCountedTwice) {
  run_ranks(3, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    metric::Additive metric({.name = "loss"});
    // Rank 1 had no sample.
    if (comm.rank() != 1) metric.update(comm.rank() + 1.0, comm.rank() + 1);
    for (int again = 0; again < 2; ++again) {
      const Metrics all = merged(metric, comm);
      if (all.at("loss") != 2.5) throw Error("expected 2.5, got {}", all.at("loss"));
    }
  });
}

TEST(Merge, AllRanksGetTheValuesOfRankZero) {
  run_ranks(2, [](process::HostGroup& host_group) {
    comm::Shared comm(host_group);
    const Metrics mine{{"rank", comm.rank()}};
    if (broadcast(mine, comm) != Metrics{{"rank", 0.0}}) throw Error("metrics differ");
    const StateDict state = broadcast(StateDict{{"tensor", torch::full({3}, comm.rank())}}, comm);
    if (state.get<torch::Tensor>("tensor").sum().item<double>() != 0) throw Error("states differ");
    const auto all = gather(StateDict{{"rank", comm.rank()}}, comm);
    if (comm.is_primary() && all.at(1).get<std::int64_t>("rank") != 1) throw Error("not rank 1's");
    if (!comm.is_primary() && !all.empty()) throw Error("gathered on a rank other than 0");
  });
}

}  // namespace
}  // namespace lockstep
