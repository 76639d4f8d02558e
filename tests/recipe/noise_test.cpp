#include "lockstep/recipe/noise.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep::recipe {
namespace {

TEST(Noise, IsTheSameForASeed) {
  const auto a = noise({.samples = 4, .shape = {2, 3}, .seed = 7});
  const auto b = noise({.samples = 4, .shape = {2, 3}, .seed = 7});
  const auto c = noise({.samples = 4, .shape = {2, 3}, .seed = 8});
  EXPECT_TRUE(a->sample(3)["features"].equal(b->sample(3)["features"]));
  EXPECT_FALSE(a->sample(3)["features"].equal(c->sample(3)["features"]));
  EXPECT_TRUE(a->sample(1)["targets"].equal(a->sample(1)["features"].flatten()));
}

TEST(Noise, CanHaveClasses) {
  const auto data = noise({.samples = 100, .shape = {2}, .classes = 3});
  for (int i = 0; i < 100; ++i) {
    const auto target = data->sample(i)["targets"].item<std::int64_t>();
    EXPECT_TRUE(target >= 0 && target < 3);
  }
}

TEST(Noise, RefusesSizesThatAreNone) {
  EXPECT_THROW(noise({.samples = 0, .shape = {2}}), ConfigError);
  EXPECT_THROW(noise({.samples = 1, .shape = {0}}), ConfigError);
  EXPECT_THROW(noise({.samples = 1, .shape = {1}, .classes = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep::recipe
