#include "lockstep/data/random.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep::data {
namespace {

std::vector<std::uint64_t> first_bits(const EpochKey& key, std::int64_t sample) {
  SampleRandom random(key, sample);
  std::vector<std::uint64_t> bits(4);
  for (std::uint64_t& b : bits) b = random.bits();
  return bits;
}

TEST(SampleRandom, IsAFunctionOfSeedEpochAndSample) {
  EXPECT_EQ(first_bits({.seed = 1, .epoch = 2}, 3), first_bits({.seed = 1, .epoch = 2}, 3));
  std::set<std::vector<std::uint64_t>> all;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (std::int64_t epoch = 0; epoch < 10; ++epoch) {
      for (std::int64_t sample = 0; sample < 10; ++sample) {
        all.insert(first_bits({.seed = seed, .epoch = epoch}, sample));
      }
    }
  }
  EXPECT_EQ(all.size(), 1000U);
}

// The numbers are part of what a run gives, so they may not change from version to version.
TEST(SampleRandom, TheNumbersStay) {
  SampleRandom random({.seed = 42, .epoch = 1}, 0);
  SampleRandom again({.seed = 42, .epoch = 1}, 0);
  EXPECT_EQ(random.bits(), again.bits());
  EXPECT_EQ(random.below(10), again.below(10));
}

TEST(SampleRandom, ACopyGoesOnWithTheSameNumbers) {
  SampleRandom random({}, 7);
  random.bits();
  SampleRandom copy = random;
  EXPECT_EQ(copy.uniform(), random.uniform());
  EXPECT_EQ(copy.normal(), random.normal());
}

// Mean and variance of many numbers, each from another sample, so that neighbours are tested too.
struct Moments {
  double mean = 0, variance = 0, least = INFINITY, largest = -INFINITY;
};
template <typename Draw>
Moments moments(Draw draw) {
  constexpr int kCount = 100'000;
  double sum = 0, squares = 0;
  Moments m;
  for (int i = 0; i < kCount; ++i) {
    SampleRandom random({.seed = 5, .epoch = 1}, i);
    const double x = draw(random);
    sum += x, squares += x * x;
    m.least = std::min(m.least, x), m.largest = std::max(m.largest, x);
  }
  m.mean = sum / kCount;
  m.variance = squares / kCount - m.mean * m.mean;
  return m;
}

TEST(SampleRandom, NumbersHaveTheirDistributions) {
  const Moments uniform = moments([](SampleRandom& r) { return r.uniform(); });
  EXPECT_NEAR(uniform.mean, 0.5, 0.005);
  EXPECT_NEAR(uniform.variance, 1.0 / 12, 0.002);
  EXPECT_GE(uniform.least, 0);
  EXPECT_LT(uniform.largest, 1);

  const Moments range = moments([](SampleRandom& r) { return r.uniform(-2, 4); });
  EXPECT_NEAR(range.mean, 1, 0.03);
  EXPECT_GE(range.least, -2);
  EXPECT_LT(range.largest, 4);

  const Moments below = moments([](SampleRandom& r) { return static_cast<double>(r.below(5)); });
  EXPECT_NEAR(below.mean, 2, 0.02);
  EXPECT_EQ(below.least, 0);
  EXPECT_EQ(below.largest, 4);

  const Moments chance = moments([](SampleRandom& r) { return r.chance(0.25) ? 1.0 : 0.0; });
  EXPECT_NEAR(chance.mean, 0.25, 0.01);

  const Moments normal = moments([](SampleRandom& r) { return r.normal(); });
  EXPECT_NEAR(normal.mean, 0, 0.02);
  EXPECT_NEAR(normal.variance, 1, 0.02);

  // Mean a / (a + b), variance ab / ((a + b)² (a + b + 1)).
  const Moments beta = moments([](SampleRandom& r) { return r.beta(2, 6); });
  EXPECT_NEAR(beta.mean, 0.25, 0.005);
  EXPECT_NEAR(beta.variance, 12.0 / (64 * 9), 0.001);
  const Moments small = moments([](SampleRandom& r) { return r.beta(0.2, 0.2); });
  EXPECT_NEAR(small.mean, 0.5, 0.01);
  EXPECT_NEAR(small.variance, 0.04 / (0.16 * 1.4), 0.005);
}

TEST(SampleRandom, TorchDrawsFromItsGenerator) {
  SampleRandom one({}, 3), two({}, 3), other({}, 4);
  const torch::Tensor first = torch::randn({5}, one.generator());
  EXPECT_TRUE(torch::equal(first, torch::randn({5}, two.generator())));
  EXPECT_FALSE(torch::equal(first, torch::randn({5}, other.generator())));
  EXPECT_FALSE(torch::equal(first, torch::randn({5}, one.generator())))
      << "each call is another one";
}

}  // namespace
}  // namespace lockstep::data
