#include "lockstep/metric/roc.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace lockstep::metric {
namespace {

TEST(RocArea, IsTheShareOfPairsInOrder) {
  EXPECT_EQ(roc_area({2, 3}, {0, 1}), 1);
  EXPECT_EQ(roc_area({0, 1}, {2, 3}), 0);
  EXPECT_EQ(roc_area({1}, {1}), 0.5);
  EXPECT_EQ(roc_area({1, 3}, {2}), 0.5);
  EXPECT_EQ(roc_area({1, 2}, {0, 1}), 3.5 / 4);
}

TEST(RocArea, OrdersEveryFloat) {
  constexpr float kInfinity = INFINITY;
  EXPECT_EQ(roc_area({-1e-40f, 0, 1e-40f, kInfinity}, {-kInfinity, -1e30f, -1}), 1);
  EXPECT_EQ(roc_area({-0.0f}, {0.0f}), 0.5);
  EXPECT_EQ(roc_area({0.0f}, {-0.0f}), 0.5);
}

TEST(RocArea, IsUndefinedWithoutBothKinds) {
  EXPECT_TRUE(std::isnan(roc_area({}, {1})));
  EXPECT_TRUE(std::isnan(roc_area({1}, {})));
}

// Above and below the size at which the sorting algorithm changes.
TEST(RocArea, AgreesWithCountingEveryPair) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int size : {10, 511, 512, 900}) {
    std::vector<float> positives(size), negatives(size);
    for (float& score : positives) score = std::round(normal(random) * 50) / 10;
    for (float& score : negatives) score = normal(random) * 5;
    std::copy_n(positives.begin(), size / 2, negatives.begin());
    double won = 0;
    for (const float above : positives) {
      for (const float below : negatives) won += above > below ? 1 : above == below ? 0.5 : 0;
    }
    EXPECT_EQ(roc_area(positives, negatives), won / size / size);
    const double area = roc_area(positives, negatives);
    std::ranges::shuffle(positives, random);
    EXPECT_EQ(roc_area(positives, negatives), area);
  }
}

}  // namespace
}  // namespace lockstep::metric
