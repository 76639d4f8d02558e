#include "lockstep/data/global_draws.h"

#include <thread>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "lockstep/data/random.h"

namespace lockstep::data {
namespace {

template <typename Draws>
bool is_noticed(Draws draws) {
  const GlobalDrawProbe probe;
  draws();
  return probe.drew();
}

TEST(GlobalDrawProbe, NoticesOperationsThatDraw) {
  EXPECT_TRUE(is_noticed([] { torch::rand({3}); }));
  EXPECT_TRUE(is_noticed([] { torch::randn_like(torch::zeros({3})); }));
  EXPECT_TRUE(is_noticed([] { torch::randint(5, {3}); }));
  EXPECT_TRUE(is_noticed([] { torch::randperm(5); }));
  EXPECT_TRUE(is_noticed([] { torch::zeros({3}).uniform_(); }));
  EXPECT_TRUE(is_noticed([] { torch::bernoulli(torch::full({3}, 0.5)); }));
  EXPECT_TRUE(is_noticed([] { torch::dropout(torch::ones({3}), 0.5, true); }));
  EXPECT_TRUE(is_noticed([] { torch::rand({3}, at::detail::getDefaultCPUGenerator()); }));
}

TEST(GlobalDrawProbe, IgnoresOtherOperationsAndGenerators) {
  EXPECT_FALSE(is_noticed([] { torch::ones({3}).add_(1).flip(0).sum(); }));
  EXPECT_FALSE(is_noticed([] { torch::randn({3}, SampleRandom({}, 1).generator()); }));
}

TEST(GlobalDrawProbe, IgnoresOtherThreads) {
  EXPECT_FALSE(is_noticed([] { std::thread([] { torch::rand({3}); }).join(); }));
}

TEST(GlobalDrawProbe, StartsAnew) {
  EXPECT_TRUE(is_noticed([] { torch::rand({3}); }));
  torch::rand({3});
  EXPECT_FALSE(is_noticed([] { torch::ones({3}); }));
}

}  // namespace
}  // namespace lockstep::data
