#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

// The shape of a layer's output for an input of ones.
std::vector<std::int64_t> shape(const std::string& layer, std::vector<std::int64_t> input) {
  const torch::Tensor example = torch::ones(input);
  auto module = targets().layers.make(node(layer), example);
  module.ptr()->eval();
  return module.forward(example).sizes().vec();
}

using Shape = std::vector<std::int64_t>;

TEST(Layers, TakeTheirSizesFromTheData) {
  EXPECT_EQ(shape("{Linear: {out_features: 5}}", {2, 7}), Shape({2, 5}));
  EXPECT_EQ(shape("{Conv1d: {out_channels: 4, kernel_size: 3}}", {2, 3, 9}), Shape({2, 4, 7}));
  EXPECT_EQ(shape("{Conv2d: {out_channels: 4, kernel_size: [3, 1], stride: 2, padding: 1}}",
                  {2, 3, 8, 8}),
            Shape({2, 4, 4, 5}));
  EXPECT_EQ(shape("{Conv3d: {out_channels: 6, kernel_size: 2, stride: 2, padding: 1}}",
                  {1, 3, 16, 16, 16}),
            Shape({1, 6, 9, 9, 9}));
  EXPECT_EQ(shape("{ConvTranspose2d: {out_channels: 2, kernel_size: 2, stride: 2}}", {1, 3, 4, 4}),
            Shape({1, 2, 8, 8}));
  EXPECT_EQ(shape("BatchNorm2d", {2, 3, 4, 4}), Shape({2, 3, 4, 4}));
  EXPECT_EQ(shape("LayerNorm", {2, 3}), Shape({2, 3}));
  EXPECT_EQ(shape("{GroupNorm: {num_groups: 2}}", {2, 4, 3}), Shape({2, 4, 3}));
}

TEST(Layers, Shapes) {
  EXPECT_EQ(shape("Flatten", {2, 3, 4}), Shape({2, 12}));
  EXPECT_EQ(shape("{Unflatten: {sizes: [3, 4]}}", {2, 12}), Shape({2, 3, 4}));
  EXPECT_EQ(shape("{MaxPool2d: {kernel_size: 2}}", {1, 1, 6, 6}), Shape({1, 1, 3, 3}));
  EXPECT_EQ(shape("{MaxPool3d: {kernel_size: 2, padding: 1}}", {1, 1, 9, 9, 9}),
            Shape({1, 1, 5, 5, 5}));
  EXPECT_EQ(shape("{AvgPool1d: {kernel_size: 2, stride: 1}}", {1, 1, 6}), Shape({1, 1, 5}));
  EXPECT_EQ(shape("{AdaptiveAvgPool3d: {output_size: 2}}", {1, 1, 9, 9, 9}),
            Shape({1, 1, 2, 2, 2}));
  for (const char* const pool : {"GlobalAvgPool", "GlobalMaxPool", "GeMPool", "GlobalAttentionPool",
                                 "{GeMPool: {p: 2, trainable: false}}"}) {
    EXPECT_EQ(shape(pool, {2, 3, 4, 5}), Shape({2, 3})) << pool;
  }
  EXPECT_EQ(shape("GlobalConcatPool", {2, 3, 4}), Shape({2, 6}));
  EXPECT_EQ(shape("{SqueezeExcitation: {reduction: 2, spatial: true}}", {2, 4, 3}),
            Shape({2, 4, 3}));
  for (const char* const plain :
       {"ReLU", "LeakyReLU", "ELU", "GELU", "SiLU", "Tanh", "Sigmoid", "Softplus", "Softmax",
        "LogSoftmax", "Identity", "Dropout", "Mish", "SELU", "ReLU6", "PReLU", "RMSNorm"}) {
    EXPECT_EQ(shape(plain, {2, 3}), Shape({2, 3})) << plain;
  }
}

TEST(Layers, WithGivenSizesTheBitsAreThoseOfTheModuleItself) {
  torch::manual_seed(1);
  const auto ours = targets().layers.make(
      node("{Conv2d: {in_channels: 3, out_channels: 4, kernel_size: 3, groups: 1}}"), {});
  torch::manual_seed(1);
  const torch::nn::Conv2d theirs(torch::nn::Conv2dOptions(3, 4, 3));
  EXPECT_TRUE(ours.ptr()->named_parameters()["weight"].equal(theirs->weight));
}

TEST(Layers, RefuseWhatCannotBe) {
  const auto error = [](const std::string& layer) {
    return error_of([&] { targets().layers.make(node(layer), {}); });
  };
  EXPECT_THAT(error("{Linear: {out_features: 0}}"), HasSubstr("it/Linear/out_features"));
  EXPECT_THAT(error("{Linear: {out_features: 3}}"), HasSubstr("there is no data to take it from"));
  EXPECT_THAT(error("{Linear: {}}"), HasSubstr("out_features is missing"));
  EXPECT_THAT(error("{Conv2d: {in_channels: 1, out_channels: 4, kernel_size: [1, 2, 3]}}"),
              HasSubstr("kernel_size: expected one number or 2, got 3"));
  EXPECT_THAT(error("{Conv2d: {in_channels: 1, out_channels: 4, kernel_size: 3, stride: 0}}"),
              HasSubstr("stride: expected a positive integer"));
  EXPECT_THAT(error("{Dropout: {p: 2}}"), HasSubstr("a.yml:1"));
  EXPECT_THAT(error("Linar"), HasSubstr("did you mean 'Linear'"));
}

}  // namespace
}  // namespace lockstep::recipe
