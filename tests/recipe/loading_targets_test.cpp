#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/data/cache.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

const std::string kNoise = "{_target_: Noise, samples: 10, shape: [2, 3], seed: 1}";

TEST(LoadingTargets, TransformedChangesTheNamedKeys) {
  const auto plain = targets().datasets.make(node(kNoise));
  const auto flat = targets().datasets.make(
      node("{Transformed: {dataset: " + kNoise + ", transform: [Flatten]}}"));
  EXPECT_TRUE(flat->sample(3)["features"].equal(plain->sample(3)["features"].flatten()));
  EXPECT_TRUE(flat->sample(3)["targets"].equal(plain->sample(3)["targets"]));
  EXPECT_THAT(
      error_of([] { targets().datasets.make(node("{Transformed: {dataset: " + kNoise + "}}")); }),
      HasSubstr("expected a transform or a target_transform"));
}

TEST(LoadingTargets, CachedKeepsSamples) {
  const auto plain = targets().datasets.make(node(kNoise));
  const auto dataset =
      targets().datasets.make(node("{Cached: {dataset: " + kNoise + ", memory: 100000}}"));
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(dataset->sample(3)["features"].equal(plain->sample(3)["features"]));
  }
  const auto* const cache = dynamic_cast<const data::Cached*>(dataset.get());
  ASSERT_NE(cache, nullptr);
  EXPECT_EQ(cache->counts().hits, 1);
  EXPECT_THAT(error_of([] {
                targets().datasets.make(node("{Cached: {dataset: " + kNoise + ", memory: -1}}"));
              }),
              HasSubstr("memory"));
}

}  // namespace
}  // namespace lockstep::recipe
