#include "lockstep/callback/ranking.h"

#include <gtest/gtest.h>

#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

data::DatasetPtr lists(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto features = torch::randn({count, 4});
  return std::make_shared<data::TensorDataset>(
      features, torch::cat({features, -features}, 1).gt(0.5).to(torch::kFloat32));
}

TEST(RankingCallbacks, AreTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history =
      toy::expect_same_history({.train = lists(41, 1),
                                .valid = lists(17, 2),
                                .outputs = 8,
                                .criterion = torch::nn::BCEWithLogitsLoss(),
                                .callbacks = [] {
                                  return Callbacks{RankingCallback({.topk = {1, 3}})};
                                }});
  const Metrics& valid = history.at(2).at("valid");
  EXPECT_GE(valid.at("hitrate03"), valid.at("hitrate01"));
}

// Catalyst's callbacks have one of these metrics each.
TEST(RankingCallbacks, OfCatalystHaveTheSameValues) {
  const Metrics metrics = SupervisedRunner().evaluate_loader(
      {.loader = {lists(30, 3), {.batch_size = 7}},
       .model = torch::nn::Sequential(torch::nn::Linear(4, 8)),
       .callbacks = {RankingCallback({.topk = {2}, .prefix = "all_"}),
                     HitrateCallback({.topk = {2}}), MRRCallback({.topk = {2}}),
                     MAPCallback({.topk = {2}}), NDCGCallback({.topk = {2}})}});
  for (const char* const name : {"hitrate02", "mrr02", "map02", "ndcg02"}) {
    EXPECT_EQ(metrics.at(name), metrics.at(std::string("all_") + name)) << name;
  }
  EXPECT_EQ(MAPCallback().better("map01"), Better::kLarger);
}

}  // namespace
}  // namespace lockstep
