#include "lockstep/data/batch.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Batch, KeepsTheOrderOfItsKeys) {
  Batch batch{{"features", torch::zeros({3, 2})}, {"targets", torch::ones({3})}};
  batch.set("logits", torch::zeros({3, 10}));
  EXPECT_THAT(batch.keys(), ElementsAre("features", "targets", "logits"));
  EXPECT_EQ(batch.size(), 3);
}

TEST(Batch, ReplacesInPlace) {
  Batch batch{{"features", torch::zeros({3})}, {"targets", torch::zeros({3})}};
  batch.set("features", torch::ones({3}));
  EXPECT_THAT(batch.keys(), ElementsAre("features", "targets"));
  EXPECT_EQ(batch["features"].sum().item<float>(), 3);
}

TEST(Batch, ForgetsAKey) {
  Batch batch{{"features", torch::zeros({3})}, {"loss", torch::zeros({})}};
  batch.erase("loss");
  batch.erase("loss");
  EXPECT_THAT(batch.keys(), ElementsAre("features"));
}

TEST(Batch, NamesTheNearestKey) {
  const Batch batch{{"features", torch::zeros({3})}, {"targets", torch::zeros({3})}};
  EXPECT_FALSE(batch.contains("target"));
  EXPECT_THAT(error_text<ConfigError>([&] { batch["target"]; }),
              HasSubstr("no 'target' in the batch; did you mean 'targets'?"));
}

TEST(Batch, WithoutRowsHasNoSize) {
  EXPECT_EQ(Batch().size(), 0);
  EXPECT_TRUE(Batch().empty());
  EXPECT_EQ((Batch{{"loss", torch::tensor(1.0)}}).size(), 0);
}

TEST(Batch, MovesToADeviceAsACopyOfTheBatch) {
  const Batch batch{{"features", torch::ones({2})}};
  EXPECT_TRUE(torch::equal(batch.to(torch::kCPU)["features"], batch["features"]));
}

}  // namespace
}  // namespace lockstep
