#include "lockstep/train/random.h"

#include <set>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep {
namespace {

TEST(Draws, DependOnThePlaceInTheRunAlone) {
  seed_draws({.seed = 1, .epoch = 2, .loader = 0, .batch = 3});
  const auto first = torch::rand({4});
  torch::rand({100});
  seed_draws({.seed = 1, .epoch = 2, .loader = 0, .batch = 3});
  EXPECT_TRUE(torch::rand({4}).equal(first));
}

TEST(RandomStateScope, RestoresTheGenerator) {
  torch::manual_seed(5);
  const auto expected = torch::rand({4});
  torch::manual_seed(5);
  {
    const RandomStateScope scope;
    torch::rand({17});
    torch::manual_seed(6);
  }
  EXPECT_TRUE(torch::rand({4}).equal(expected));
}

// Runs without phases were made before there were phases, and must stay the same.
TEST(Draws, TheFirstPhaseHasTheNumbersOfARunWithoutPhases) {
  EXPECT_EQ(mix_seed({.seed = 1, .epoch = 2, .phase = 0}), mix_seed({.seed = 1, .epoch = 2}));
  EXPECT_NE(mix_seed({.seed = 1, .epoch = 2, .phase = 1}), mix_seed({.seed = 1, .epoch = 2}));
  EXPECT_NE(mix_seed({.seed = 1, .epoch = 2, .phase = 1}),
            mix_seed({.seed = 1, .epoch = 2, .phase = 2}));
}

TEST(Draws, DifferBetweenAllPlaces) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed : {0, 1, 2}) {
    for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
      for (std::int64_t loader = 0; loader < 3; ++loader) {
        for (std::int64_t batch = 0; batch < 20; ++batch) {
          seeds.insert(mix_seed({seed, epoch, loader, batch}));
        }
      }
    }
  }
  EXPECT_EQ(seeds.size(), 3u * 5 * 3 * 20);
}

}  // namespace
}  // namespace lockstep
