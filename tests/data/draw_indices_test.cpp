#include "lockstep/data/draw_indices.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

TEST(DrawIndices, CountsUpFromZero) {
  EXPECT_THAT(count_up(3), ::testing::ElementsAre(0, 1, 2));
  EXPECT_TRUE(count_up(0).empty());
}

TEST(DrawIndices, AShuffleIsAPermutationThatDependsOnSeedAndEpoch) {
  const auto shuffled = [](std::uint64_t seed, std::int64_t epoch) {
    auto indices = count_up(100);
    SampleRandom random = order_random(seed, epoch);
    shuffle(indices, random);
    return indices;
  };
  EXPECT_EQ(shuffled(1, 2), shuffled(1, 2));
  EXPECT_NE(shuffled(1, 2), shuffled(1, 3));
  EXPECT_NE(shuffled(1, 2), shuffled(2, 2));
  auto sorted = shuffled(1, 2);
  std::ranges::sort(sorted);
  EXPECT_EQ(sorted, count_up(100));
}

// The order of the permutations of three: each has a sixth of the draws.
TEST(DrawIndices, AllPermutationsAreEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> counts;
  SampleRandom random = order_random(0, 1);
  for (int i = 0; i < 6000; ++i) {
    auto indices = count_up(3);
    shuffle(indices, random);
    counts[indices] += 1;
  }
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);  // 5 sigma
}

TEST(DrawIndices, AChoiceRepeatsOnlyIfThereAreTooFew) {
  const auto all = count_up(1000);
  for (const std::int64_t count : {0, 1, 40, 61, 62, 63, 500, 1000}) {
    SampleRandom random = order_random(3, 1);
    const auto chosen = choose(all, count, random);
    EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), static_cast<std::size_t>(count));
  }
  SampleRandom random = order_random(3, 1);
  const auto repeated = choose(std::vector<std::int64_t>{7, 9}, 50, random);
  EXPECT_EQ(repeated.size(), 50u);
  EXPECT_EQ(std::set(repeated.begin(), repeated.end()), (std::set<std::int64_t>{7, 9}));
}

// A few of many are drawn without a copy of all; the choice is the same.
TEST(DrawIndices, AFewAreTheFirstOfAll) {
  const auto all = count_up(1000);
  SampleRandom one = order_random(3, 1);
  SampleRandom two = order_random(3, 1);
  const auto few = choose(all, 50, one);
  auto every = choose(all, 1000, two);
  every.resize(50);
  EXPECT_EQ(few, every);
}

TEST(DrawIndices, AFingerprintDependsOnEveryValue) {
  EXPECT_EQ(fingerprint(count_up(5)), fingerprint(count_up(5)));
  EXPECT_NE(fingerprint(count_up(5)), fingerprint(count_up(6)));
  EXPECT_NE(fingerprint(std::vector<double>{1, 2}), fingerprint(std::vector<double>{2, 1}));
}

}  // namespace
}  // namespace lockstep::data
