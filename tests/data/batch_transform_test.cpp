#include "lockstep/data/batch_transform.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

struct Scale {
  Batch operator()(Batch batch, SampleRandom&) const {
    batch.set("x", batch["x"] * factor);
    return batch;
  }
  std::string settings() const { return fmt::format("factor={}", factor); }
  double factor = 1;
};

Batch add_one(Batch batch, SampleRandom&) {
  batch.set("x", batch["x"] + 1);
  return batch;
}

double result(const BatchTransform& transform) {
  SampleRandom random({}, 0);
  return transform({{"x", torch::tensor(3.0)}}, random)["x"].item<double>();
}

TEST(BatchTransform, IsAFunctionOrNothing) {
  EXPECT_FALSE(BatchTransform());
  EXPECT_FALSE(BatchTransform(BatchTransform::Function()));
  EXPECT_TRUE(BatchTransform(add_one));
  EXPECT_EQ(result(add_one), 4);
  EXPECT_EQ(result(Scale{.factor = 2}), 6);
}

TEST(BatchTransform, OneFollowsTheOther) {
  const BatchTransform twice = Scale{.factor = 2};
  EXPECT_EQ(result(twice.then(add_one)), 7);
  EXPECT_EQ(result(BatchTransform(add_one).then(twice)), 8);
  EXPECT_EQ(result(BatchTransform().then(twice)), 6);
  EXPECT_EQ(result(twice.then({})), 6);
  EXPECT_FALSE(BatchTransform().then({}));
}

TEST(BatchTransform, TheSecondGoesOnWithTheRandomNumbers) {
  const BatchTransform draw = [](Batch batch, SampleRandom& random) {
    batch.set(batch.contains("a") ? "b" : "a", torch::tensor(random.uniform(), torch::kFloat64));
    return batch;
  };
  SampleRandom random({}, 0), expected({}, 0);
  const Batch batch = draw.then(draw)({{"x", torch::tensor(3.0)}}, random);
  EXPECT_EQ(batch["a"].item<double>(), expected.uniform());
  EXPECT_EQ(batch["b"].item<double>(), expected.uniform());
}

TEST(BatchTransform, HasANameToCompare) {
  EXPECT_EQ(BatchTransform().name(), "none");
  const BatchTransform twice = Scale{.factor = 2};
  EXPECT_THAT(twice.name(), EndsWith("Scale of factor=2"));
  EXPECT_NE(twice.name(), BatchTransform(Scale{.factor = 3}).name());
  EXPECT_THAT(twice.then(Scale{.factor = 3}).name(), HasSubstr("factor=2, then "));
  EXPECT_EQ(BatchTransform().then(twice).name(), twice.name());
}

}  // namespace
}  // namespace lockstep::data
