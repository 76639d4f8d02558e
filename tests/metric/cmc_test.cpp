#include "lockstep/metric/cmc.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::metric {
namespace {

// Points on a line. The gallery: 0 (label 1, camera 1), 2 (2, 1), 3 (1, 2), 7 (3, 1).
torch::Tensor points() {
  return torch::tensor({{0.0F}, {2.0F}, {3.0F}, {7.0F}, {1.6F}, {2.4F}, {9.0F}, {5.5F}});
}

// Label, is query, camera. The queries: 1.6 (label 1, camera 1), 2.4 (1, 2), 9 (3, 2), 5.5 (4, 1).
torch::Tensor targets() {
  return torch::tensor(
      {{1, 0, 1}, {2, 0, 1}, {1, 0, 2}, {3, 0, 1}, {1, 1, 1}, {1, 1, 2}, {3, 1, 2}, {4, 1, 1}},
      torch::kInt64);
}

// Nearest to 1.6 are 2 (label 2), then 3 (label 1): a hit for k = 2. The same for 2.4. Nearest to 9
// is 7 (label 3): a hit for k = 1. The gallery does not have label 4.
TEST(Cmc, CountsTheQueriesWithANearMatch) {
  Cmc cmc({.topk = {1, 2, 4}});
  cmc.update(points(), targets().narrow(1, 0, 2));
  EXPECT_EQ(cmc.compute(), (Metrics{{"cmc01", 0.25}, {"cmc02", 0.75}, {"cmc04", 0.75}}));
}

// 2.4 ignores 3, which has its label and its camera. Nearer than its match 0 is only 2, so it is
// still a hit for k = 2. 9 is not changed. 1.6 ignores 0, and its match is 3.
TEST(Cmc, IgnoresTheQuerysOwnCamera) {
  Cmc cmc({.topk = {1, 2}});
  cmc.update(points(), targets());
  EXPECT_EQ(cmc.compute(), (Metrics{{"cmc01", 0.25}, {"cmc02", 0.75}}));
  // If the only match has the query's camera, the query is a miss.
  Cmc other;
  other.update(torch::tensor({{0.0F}, {1.0F}}),
               torch::tensor({{1, 1, 1}, {1, 0, 1}}, torch::kInt64));
  EXPECT_EQ(other.compute(), (Metrics{{"cmc01", 0.0}}));
}

// A network that gives all samples the same embedding must not look perfect.
TEST(Cmc, EqualDistancesCountAgainstTheQuery) {
  Cmc cmc({.topk = {1, 2, 3}});
  cmc.update(torch::ones({4, 2}), torch::tensor({{1, 1}, {1, 0}, {2, 0}, {3, 0}}, torch::kInt64));
  EXPECT_EQ(cmc.compute(), (Metrics{{"cmc01", 0.0}, {"cmc02", 0.0}, {"cmc03", 1.0}}));
}

TEST(Cmc, EmbeddingsMustBeFinite) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    torch::Tensor embeddings = torch::ones({2, 3});
    embeddings[1][2] = bad;
    Cmc cmc;
    EXPECT_THAT(
        [&] {
          cmc.update(embeddings, torch::tensor({{1, 1}, {1, 0}}, torch::kInt64));
        },
        testing::ThrowsMessage<DataError>(testing::HasSubstr("in sample 1")));
  }
}

TEST(Cmc, PartsOfSeveralRanksGiveTheSame) {
  Cmc whole({.topk = {1, 2}});
  whole.update(points(), targets());
  Cmc first({.topk = {1, 2}}), second({.topk = {1, 2}});
  first.begin({.batch = 1, .shard = 0});
  first.update(points().narrow(0, 0, 3), targets().narrow(0, 0, 3));
  second.begin({.batch = 1, .shard = 1});
  second.update(points().narrow(0, 3, 5), targets().narrow(0, 3, 5));
  Cmc loaded({.topk = {1, 2}});
  loaded.load_state(first.state());
  loaded.merge(second.state());
  EXPECT_EQ(loaded.compute(), whole.compute());
}

TEST(Cmc, ManyQueriesAreHandledInBlocks) {
  torch::manual_seed(4);
  const torch::Tensor embeddings = torch::randn({900, 5});
  const torch::Tensor labels = torch::randint(0, 40, {900}, torch::kInt64);
  const torch::Tensor queries = (torch::arange(900) % 3 == 0).to(torch::kInt64);
  Cmc cmc({.topk = {3}});
  cmc.update(embeddings, torch::stack({labels, queries}, 1));
  // By hand: the labels of the three nearest.
  const torch::Tensor all =
      torch::cdist(embeddings.to(torch::kFloat64), embeddings.to(torch::kFloat64), 2.0, 2);
  int hits = 0;
  for (std::int64_t i = 0; i < 900; i += 3) {
    const torch::Tensor distances =
        all[i].masked_fill(queries.to(torch::kBool), std::numeric_limits<double>::infinity());
    const torch::Tensor nearest = std::get<1>(distances.topk(3, 0, /*largest=*/false));
    if ((labels.index_select(0, nearest) == labels[i]).any().item<bool>()) ++hits;
  }
  EXPECT_DOUBLE_EQ(cmc.compute().at("cmc03"), hits / 300.0);
}

TEST(Cmc, WithoutQueriesOrGalleryThereIsNoValue) {
  Cmc cmc;
  EXPECT_TRUE(std::isnan(cmc.compute().at("cmc01")));
  cmc.update(points().narrow(0, 0, 4), targets().narrow(0, 0, 4));
  EXPECT_TRUE(std::isnan(cmc.compute().at("cmc01")));
}

TEST(Cmc, WhatDoesNotFitIsRefused) {
  Cmc cmc;
  EXPECT_THROW(cmc.update(torch::zeros({4}), targets().narrow(0, 0, 4)), DataError);
  EXPECT_THROW(cmc.update(points(), targets().select(1, 0)), DataError);
  EXPECT_THROW(cmc.update(points(), targets().narrow(0, 0, 4)), DataError);
  EXPECT_THROW(Cmc({.topk = {0}}), ConfigError);
  EXPECT_THROW(Cmc({.topk = {}}), ConfigError);
}

}  // namespace
}  // namespace lockstep::metric
