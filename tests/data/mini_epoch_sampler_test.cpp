#include "lockstep/data/mini_epoch_sampler.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

TEST(MiniEpochSampler, GoesOnWhereTheLastOneEnded) {
  const MiniEpochSampler sampler(7, {.mini_epoch_length = 3});
  EXPECT_EQ(sampler.size(), 3);
  EXPECT_THAT(sampler.indices(1), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampler.indices(2), ElementsAre(3, 4, 5));
  EXPECT_THAT(sampler.indices(3), ElementsAre(6, 0, 1)) << "filled with the first samples";
  EXPECT_THAT(sampler.indices(4), ElementsAre(0, 1, 2));
  const MiniEpochSampler dropping(7, {.mini_epoch_length = 3, .drop_last = true});
  EXPECT_THAT(dropping.indices(3), ElementsAre(0, 1, 2));
  const MiniEpochSampler longer(2, {.mini_epoch_length = 3, .drop_last = true});
  EXPECT_THAT(longer.indices(2), ElementsAre(0, 1, 0));
}

TEST(MiniEpochSampler, ShufflesTheWholeDataSetOrEachMiniEpoch) {
  const auto two = [](MiniEpochShuffle shuffle, std::int64_t epoch) {
    const MiniEpochSampler sampler(20, {.mini_epoch_length = 10, .shuffle = shuffle});
    auto both = sampler.indices(epoch);
    const auto second = sampler.indices(epoch + 1);
    both.insert(both.end(), second.begin(), second.end());
    return both;
  };
  std::vector<std::int64_t> all(20);
  std::iota(all.begin(), all.end(), 0);
  const auto sorted = [](std::vector<std::int64_t> values) {
    std::ranges::sort(values);
    return values;
  };
  const auto first = two(MiniEpochShuffle::kPerEpoch, 1);
  EXPECT_EQ(sorted(first), all) << "every sample once in two mini epochs";
  EXPECT_NE(first, all);
  EXPECT_NE(two(MiniEpochShuffle::kPerEpoch, 3), first) << "the next round has another order";
  EXPECT_NE(sorted(two(MiniEpochShuffle::kPerMiniEpoch, 1)), all) << "any samples, each time";
}

TEST(MiniEpochSampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(MiniEpochSampler(0, {}), ConfigError);
  EXPECT_THROW(MiniEpochSampler(5, {.mini_epoch_length = 0}), ConfigError);
}

TEST(MiniEpochSampler, TellsWhatDecidesTheOrder) {
  const auto settings = [](const MiniEpochOptions& options) {
    return MiniEpochSampler(9, options).settings();
  };
  EXPECT_NE(settings({.drop_last = true}), settings({}));
  EXPECT_NE(settings({.shuffle = MiniEpochShuffle::kPerEpoch}), settings({}));
  EXPECT_NE(settings({.seed = 3}), settings({}));
}

}  // namespace
}  // namespace lockstep::data
