#include "lockstep/data/subset_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

TEST(SubsetRandomSampler, ShufflesTheGivenSamples) {
  const SubsetRandomSampler sampler({7, 2, 9, 2}, {.seed = 5});
  EXPECT_EQ(sampler.size(), 4);
  EXPECT_THAT(sampler.indices(3), testing::UnorderedElementsAre(7, 2, 9, 2));
  // As PyTorch does it: by a random permutation of the places.
  const std::vector<std::int64_t> given = {7, 2, 9, 2};
  std::vector<std::int64_t> expected;
  for (const std::int64_t place : permutation(4, 8)) {
    expected.push_back(given[static_cast<std::size_t>(place)]);
  }
  EXPECT_EQ(sampler.indices(3), expected);
}

TEST(SubsetRandomSampler, RefusesNegativeIndices) {
  EXPECT_THROW(SubsetRandomSampler({0, -1}), ConfigError);
}

TEST(SubsetRandomSampler, TellsWhatDecidesTheOrder) {
  EXPECT_NE(SubsetRandomSampler({1, 2}).settings(), SubsetRandomSampler({1, 3}).settings());
  EXPECT_NE(SubsetRandomSampler({1, 2}).settings(),
            SubsetRandomSampler({1, 2}, {.seed = 1}).settings());
}

}  // namespace
}  // namespace lockstep::data
