#include "lockstep/data/weighted_sampler.h"

#include <algorithm>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WeightedRandomSampler, DrawsByWeight) {
  const WeightedRandomSampler sampler({1, 0, 3, 0}, {.samples = 8000});
  const auto order = sampler.indices(1);
  EXPECT_EQ(order.size(), 8000u);
  EXPECT_NEAR(std::ranges::count(order, 0), 2000, 200);  // 5 sigma
  EXPECT_NEAR(std::ranges::count(order, 2), 6000, 200);
  EXPECT_EQ(std::ranges::count(order, 1) + std::ranges::count(order, 3), 0);
  EXPECT_EQ(sampler.indices(1), order);
  EXPECT_NE(sampler.indices(2), order);
}

TEST(WeightedRandomSampler, DrawsEachSampleOnceWithoutReplacement) {
  int first_is_heavy = 0;
  const WeightedRandomSampler sampler({1, 0, 3, 1}, {.samples = 3, .replacement = false});
  for (std::int64_t epoch = 1; epoch <= 2000; ++epoch) {
    const auto order = sampler.indices(epoch);
    EXPECT_EQ(std::set(order.begin(), order.end()), (std::set<std::int64_t>{0, 2, 3}));
    first_is_heavy += order.front() == 2 ? 1 : 0;
  }
  EXPECT_NEAR(first_is_heavy, 1200, 110) << "3 of 5; 5 sigma";
}

TEST(WeightedRandomSampler, RefusesWhatMakesNoSense) {
  const auto error = [](std::vector<double> weights, const WeightedRandomOptions& options = {}) {
    return error_text<ConfigError>([&] { WeightedRandomSampler(std::move(weights), options); });
  };
  EXPECT_THAT(error({1, -1}), HasSubstr("weights: expected 0 or more for sample 1, got -1"));
  EXPECT_THAT(error({std::numeric_limits<double>::quiet_NaN()}), HasSubstr("weights"));
  EXPECT_THAT(error({0, 0}), HasSubstr("positive"));
  EXPECT_THAT(error({}), HasSubstr("weights"));
  EXPECT_THAT(error({1, 1}, {.samples = 0}), HasSubstr("samples"));
  EXPECT_THAT(error({1, 0}, {.replacement = false}), HasSubstr("at most the 1 samples"));
}

TEST(WeightedRandomSampler, TellsWhatDecidesTheOrder) {
  EXPECT_NE(WeightedRandomSampler({1, 2}).settings(), WeightedRandomSampler({2, 1}).settings());
  EXPECT_NE(WeightedRandomSampler({1, 2}).settings(),
            WeightedRandomSampler({1, 2}, {.replacement = false}).settings());
}

TEST(WeightsByClass, AreThoseOfTheLabels) {
  EXPECT_THAT(weights_by_class({1, 0, 1}, {0.5, 2}), ElementsAre(2, 0.5, 2));
  EXPECT_THAT(error_text<ConfigError>([] {
                weights_by_class({0, 2}, {1, 1});
              }),
              HasSubstr("got 2 of them, and a sample of class 2"));
}

}  // namespace
}  // namespace lockstep::data
