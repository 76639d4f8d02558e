#include "lockstep/recipe/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/data/partitioned.h"
#include "tests/recipe/support.h"
#include "tests/recipe/thousands.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;
using testing::Thousands;

TEST(OutputScaling, ChangesOutputsOfTheTargetsSize) {
  const data::Loader loader(std::make_shared<Thousands>());
  Batch outputs = {{"logits", torch::ones({3, 4})}, {"size", torch::ones({3, 2})}};
  OutputScaling(loader).undo(outputs);
  EXPECT_TRUE(outputs["logits"].equal(torch::full({3, 4}, 1000.5)));
  EXPECT_TRUE(outputs["size"].equal(torch::ones({3, 2})));
}

// The first sample is not on this host.
TEST(OutputScaling, IsFoundInAPartOfTheData) {
  const data::Loader loader(
      data::partitioned({.parts = 2, .here = {{1, std::make_shared<Thousands>()}}}));
  Batch outputs = {{"logits", torch::ones({3, 4})}};
  OutputScaling(loader).undo(outputs);
  EXPECT_TRUE(outputs["logits"].equal(torch::full({3, 4}, 1000.5)));
}

// [B] and [B, N, N] are outputs of one channel without its dimension.
TEST(OutputScaling, OneChannelMayHaveAnyShape) {
  const data::Loader loader(std::make_shared<Thousands>());
  Batch outputs = {{"square", torch::ones({3, 2, 2})},
                   {"labels", torch::ones({3, 4}, torch::kInt64)}};
  OutputScaling(loader).undo(outputs);
  EXPECT_TRUE(outputs["square"].equal(torch::full({3, 2, 2}, 1000.5)));
  EXPECT_TRUE(outputs["labels"].equal(torch::ones({3, 4}, torch::kInt64)));
}

// Four values of two channels, which are scaled by 10 and 100.
class TwoChannels : public Thousands {
 public:
  const data::Scaling& scaling() const override { return two_; }

 private:
  data::Scaling two_{
      .targets = {.kind = data::Normalization::kStandard, .shift = {0, 0}, .scale = {10, 100}}};
};

TEST(OutputScaling, SeveralChannelsAreInDimensionOne) {
  const OutputScaling scaling{data::Loader(std::make_shared<TwoChannels>())};
  const torch::Tensor expected = torch::tensor({{10.0F, 10.0F, 100.0F, 100.0F}});
  Batch outputs = {{"flat", torch::ones({1, 4})}, {"field", torch::ones({1, 2, 2})}};
  scaling.undo(outputs);
  EXPECT_TRUE(outputs["flat"].equal(expected));
  EXPECT_TRUE(outputs["field"].equal(expected.reshape({1, 2, 2})));
  Batch unclear = {{"other", torch::ones({1, 4, 1})}};
  EXPECT_THROW(scaling.undo(unclear), DataError);
}

TEST(ScalingValue, MistakesAreFoundInTheirPlace) {
  const auto read = [](const std::string& text) {
    return error_of([&] { config::Value<data::Scaling>::read(node(text)); });
  };
  EXPECT_EQ(read("{features: {kind: log, shift: [1], scale: [2]}}"), "");
  EXPECT_THAT(read("{features: {kind: log, shift: [1], scale: [0]}}"), HasSubstr("it/features"));
  EXPECT_THAT(read("{features: {kind: logs}}"), HasSubstr("expected none or standard or minmax"));
  EXPECT_THAT(read("{feature: {}}"), HasSubstr("did you mean 'features'"));
}

TEST(ScalingValue, ComesBackToTheBit) {
  const data::Scaling scaling = Thousands().scaling();
  EXPECT_EQ(config::Value<data::Scaling>::read(to_node(scaling)), scaling);
}

}  // namespace
}  // namespace lockstep::recipe
