#include "lockstep/metric/ranking.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<std::string> kEvery = {"hitrate", "mrr", "map", "ndcg", "any_hit"};

TEST(Ranking, IsWhatTorchmetricsSays) {
  for (const auto& set : catalogue().at("ranked")) {
    SCOPED_TRACE(set.at("name").get<std::string>());
    const torch::Tensor scores = matrix_of<float>(set.at("scores"));
    const torch::Tensor relevances = matrix_of<std::int64_t>(set.at("relevances"));
    for (const auto& [k, expected] : set.at("k").items()) {
      Ranking metric({.metrics = kEvery, .topk = {std::stoll(k)}});
      metric.update(scores, relevances);
      const Metrics metrics = metric.compute();
      for (const std::string& name : kEvery) {
        // torchmetrics has float32 inside.
        EXPECT_NEAR(metrics.at(fmt::format("{}{:02}", name, std::stoll(k))),
                    expected.at(name).get<double>(), name == "ndcg" ? 1e-12 : 1e-6)
            << name << " " << k;
      }
    }
  }
}

TEST(Ranking, NamesHaveTheirK) {
  const Ranking metric({.metrics = {"map"}, .topk = {1, 10}, .prefix = "a_", .suffix = "_b"});
  EXPECT_THAT(metric.names(),
              testing::ElementsAre("a_map01_b", "a_map01_b/std", "a_map10_b", "a_map10_b/std"));
  expect_names_match(metric);
  EXPECT_EQ(metric.better("a_map10_b"), Better::kLarger);
}

TEST(Ranking, SmallListsByHand) {
  Ranking metric({.metrics = kEvery, .topk = {2}});
  // Ordered by score: relevances 0, 2, 1.
  metric.update(torch::tensor({{3.0, 2.0, 1.0}}), torch::tensor({{0, 2, 1}}));
  const Metrics metrics = metric.compute();
  EXPECT_EQ(metrics.at("hitrate02"), 0.5);
  EXPECT_EQ(metrics.at("any_hit02"), 1);
  EXPECT_EQ(metrics.at("mrr02"), 0.5);
  EXPECT_EQ(metrics.at("map02"), 0.5);
  EXPECT_DOUBLE_EQ(metrics.at("ndcg02"),
                   (3 / std::log2(3.0)) / (3 / std::log2(2.0) + 1 / std::log2(3.0)));
}

TEST(Ranking, TiesAreOrderedByIndexAndKMayBeLarge) {
  Ranking metric({.metrics = {"mrr"}, .topk = {9}});
  metric.update(torch::zeros({1, 3}), torch::tensor({{0, 0, 1}}));
  EXPECT_EQ(metric.compute().at("mrr09"), 1.0 / 3);
}

TEST(Ranking, MergesToTheBit) {
  for (const auto& set : catalogue().at("ranked")) {
    const Batches batches{matrix_of<float>(set.at("scores")),
                          matrix_of<std::int64_t>(set.at("relevances")), 4};
    const auto make = [] { return Ranking({.metrics = kEvery, .topk = {1, 3}}); };
    expect_merges_exactly(make, batches.size(), batches);
    expect_batches_do_not_matter(make, batches.outputs, batches.targets);
  }
}

TEST(Ranking, WhatDoesNotFitIsNamed) {
  EXPECT_THAT([] { Ranking({.metrics = {"mapp"}}); },
              ThrowsMessage<ConfigError>(HasSubstr("there is no 'mapp'; did you mean 'map'?")));
  EXPECT_THROW(Ranking({.metrics = {}}), ConfigError);
  EXPECT_THROW(Ranking({.topk = {}}), ConfigError);
  EXPECT_THROW(Ranking({.topk = {0}}), ConfigError);
  EXPECT_THROW(Ranking({.topk = {2, 2}}), ConfigError);
  Ranking metric(RankingOptions{});
  EXPECT_THAT(
      [&] {
        metric.update(torch::rand({2, 3}), torch::tensor({0, 1}));
      },
      ThrowsMessage<DataError>(HasSubstr("expected the shape [samples, items] of both")));
  EXPECT_THAT(
      [&] {
        metric.update(torch::rand({1, 2}), torch::tensor({{0, -1}}));
      },
      ThrowsMessage<DataError>(HasSubstr("item 1 of sample 0 has the relevance -1")));
  EXPECT_THAT(
      [&] {
        metric.update(torch::tensor({{0.0, std::nan("")}}), torch::zeros({1, 2}));
      },
      ThrowsMessage<DataError>(HasSubstr("item 1 is NaN in sample 0")));
  EXPECT_TRUE(std::isnan(metric.compute().at("map01")));
}

}  // namespace
}  // namespace lockstep::metric
