#include "lockstep/data/length_sampler.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/random.h"

namespace lockstep::data {
namespace {

std::vector<std::int64_t> some_lengths(std::int64_t count) {
  SampleRandom random({}, 0);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(count));
  for (std::int64_t& length : lengths) length = 1 + random.below(100);
  return lengths;
}

// The elements that are added to the sequences of an epoch.
std::int64_t padding(const std::vector<std::int64_t>& lengths,
                     const std::vector<std::int64_t>& order, std::int64_t batch_size) {
  std::int64_t added = 0;
  for (std::size_t first = 0; first < order.size(); first += static_cast<std::size_t>(batch_size)) {
    const std::size_t end = std::min(order.size(), first + static_cast<std::size_t>(batch_size));
    std::int64_t longest = 0, sum = 0;
    for (std::size_t i = first; i < end; ++i) {
      const std::int64_t length = lengths[static_cast<std::size_t>(order[i])];
      longest = std::max(longest, length);
      sum += length;
    }
    added += longest * static_cast<std::int64_t>(end - first) - sum;
  }
  return added;
}

TEST(LengthSampler, EverySampleComesOnceAndPaddingIsShort) {
  const auto lengths = some_lengths(1003);
  const LengthSampler sampler(lengths, {.batch_size = 8, .batches_per_pool = 25});
  const auto order = sampler.indices(1);
  auto sorted = order;
  std::ranges::sort(sorted);
  std::vector<std::int64_t> all(1003);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  EXPECT_LT(padding(lengths, order, 8), padding(lengths, all, 8) / 8);
  EXPECT_EQ(sampler.indices(1), order);
  EXPECT_NE(sampler.indices(2), order);
}

TEST(LengthSampler, BatchesComeInARandomOrder) {
  const auto lengths = some_lengths(800);
  const auto order = LengthSampler(lengths, {.batch_size = 8}).indices(1);
  int rises = 0;
  for (std::size_t first = 8; first < order.size(); first += 8) {
    rises += lengths[static_cast<std::size_t>(order[first])] >
                     lengths[static_cast<std::size_t>(order[first - 8])]
                 ? 1
                 : 0;
  }
  EXPECT_GT(rises, 25) << "of 99";
  EXPECT_LT(rises, 75) << "sorted batches would rise each time";
}

TEST(LengthSampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(LengthSampler({1, 2}, {.batch_size = 0}), ConfigError);
  EXPECT_THROW(LengthSampler({1, 2}, {.batches_per_pool = 0}), ConfigError);
  EXPECT_TRUE(LengthSampler({}, {}).indices(1).empty());
}

TEST(LengthSampler, TellsWhatDecidesTheOrder) {
  EXPECT_NE(LengthSampler({1, 2}, {}).settings(), LengthSampler({2, 1}, {}).settings());
  EXPECT_NE(LengthSampler({1, 2}, {}).settings(),
            LengthSampler({1, 2}, {.batches_per_pool = 3}).settings());
}

}  // namespace
}  // namespace lockstep::data
