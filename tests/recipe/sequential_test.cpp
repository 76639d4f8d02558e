#include "lockstep/recipe/sequential.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Sequential, SizesGoFromLayerToLayer) {
  auto net = make_sequential(
      node("[Flatten, {Linear: {out_features: 5}}, BatchNorm1d, {Linear: {out_features: 2}}]"),
      {.input = torch::ones({1, 3, 4})});
  EXPECT_TRUE(net->is_training());
  EXPECT_TRUE(net->named_parameters().contains("1.weight"));  // Python's names
  EXPECT_TRUE(net->named_buffers()["2.running_mean"].eq(0).all().item<bool>())
      << "the example changed the statistics";
  EXPECT_EQ(net->forward(torch::ones({7, 3, 4})).sizes(), torch::IntArrayRef({7, 2}));
}

TEST(Sequential, ALayerThatDoesNotFitIsNamed) {
  const auto error = error_of([] {
    make_sequential(node("[Flatten, {Linear: {in_features: 100, out_features: 5}}]"),
                    {.input = torch::ones({1, 3, 4})});
  });
  EXPECT_THAT(error, HasSubstr("a.yml:1: it/1: does not fit an input of Float [1, 12]"));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("Exception raised from")));
}

TEST(Sequential, TheLastLayerHasAnOutputPerClass) {
  const Example example{.input = torch::ones({1, 3, 4}), .classes = 6};
  const auto outputs = [&](const std::string& layers) {
    return make_sequential(node(layers), example)->forward(torch::ones({7, 3, 4})).size(1);
  };
  EXPECT_EQ(outputs("[Flatten, Linear]"), 6);
  EXPECT_EQ(outputs("[Flatten, {Linear: {bias: false}}]"), 6);
  EXPECT_EQ(outputs("[Flatten, {_target_: Linear}]"), 6);
  EXPECT_EQ(outputs("[Flatten, {Linear: {out_features: 2}}]"), 2);
  EXPECT_THAT(error_of([&] { outputs("[Flatten, Linear, ReLU]"); }),
              HasSubstr("it/1: out_features is missing"));
  EXPECT_THAT(error_of([] {
                make_sequential(node("[Flatten, Linear]"), {.input = torch::ones({1, 4})});
              }),
              HasSubstr("out_features is missing"));
}

TEST(Sequential, IsAListOfSomething) {
  EXPECT_THAT(error_of([] { make_sequential(node("[]"), {}); }), HasSubstr("at least one layer"));
  EXPECT_THAT(error_of([] { make_sequential(node("{a: 1}"), {}); }), HasSubstr("a list of layers"));
}

}  // namespace
}  // namespace lockstep::recipe
