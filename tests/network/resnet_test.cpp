#include "lockstep/network/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/network/support.h"

namespace lockstep::network {
namespace {

using testing::count_of;
using testing::error_of;
using ::testing::HasSubstr;
using testing::sizes_of;
using Sizes = std::vector<std::int64_t>;

TEST(ResNet, HasTheParametersOfTorchvision) {
  EXPECT_EQ(count_of(*ResNet(ResNetOptions{.depth = 18})), 11'689'512);
  EXPECT_EQ(count_of(*ResNet(ResNetOptions{.depth = 34})), 21'797'672);
  const ResNet model(ResNetOptions{.depth = 50});
  EXPECT_EQ(count_of(*model), 25'557'032);
  EXPECT_EQ(sizes_of(*model, "conv1.weight"), (Sizes{64, 3, 7, 7}));
  EXPECT_EQ(sizes_of(*model, "bn1.running_var"), (Sizes{64}));
  EXPECT_EQ(sizes_of(*model, "bn1.num_batches_tracked"), (Sizes{}));
  EXPECT_EQ(sizes_of(*model, "layer1.0.downsample.0.weight"), (Sizes{256, 64, 1, 1}));
  EXPECT_EQ(sizes_of(*model, "layer1.0.downsample.1.bias"), (Sizes{256}));
  EXPECT_EQ(sizes_of(*model, "layer1.1.downsample.0.weight"), (Sizes{-1}));
  EXPECT_EQ(sizes_of(*model, "layer2.0.conv2.weight"), (Sizes{128, 128, 3, 3}));
  EXPECT_EQ(sizes_of(*model, "layer4.2.bn3.bias"), (Sizes{2048}));
  EXPECT_EQ(sizes_of(*model, "fc.weight"), (Sizes{1000, 2048}));
}

TEST(ResNet, TheSmallOneHasThoseOfThePaper) {
  const ResNet model(ResNetOptions{.depth = 20, .classes = 10});
  EXPECT_EQ(count_of(*model), 269'722);  // 0.27 million
  EXPECT_EQ(sizes_of(*model, "layer2.0.conv1.weight"), (Sizes{32, 16, 3, 3}));
  EXPECT_EQ(sizes_of(*model, "layer2.0.downsample.0.weight"), (Sizes{-1}));
  EXPECT_EQ(sizes_of(*model, "layer4.0.conv1.weight"), (Sizes{-1}));
}

TEST(ResNet, ClassifiesImages) {
  for (const std::int64_t depth : {18, 20, 50}) {
    SCOPED_TRACE(depth);
    torch::manual_seed(depth);
    ResNet model(ResNetOptions{.depth = depth, .classes = 7, .channels = 2});
    const auto output = model->forward(torch::randn({3, 2, 33, 40}));
    EXPECT_EQ(output.sizes(), torch::IntArrayRef({3, 7}));
    testing::expect_gradients_everywhere(*model, output);
  }
}

TEST(ResNet, BeginsWithTheVarianceOfTorchvision) {
  torch::manual_seed(1);
  const ResNet model(ResNetOptions{.depth = 18});
  const auto parameters = model->named_parameters();
  // Normal, with a variance of 2 / (512 outputs x 9); 2.4 million numbers.
  EXPECT_NEAR(parameters["layer4.1.conv2.weight"].std().item<double>(), std::sqrt(2.0 / 4608),
              1e-4);
  EXPECT_EQ(parameters["layer4.1.bn2.weight"].min().item<double>(), 1.0);
  EXPECT_EQ(parameters["layer4.1.bn2.bias"].abs().max().item<double>(), 0.0);
}

TEST(ResNet, ComputesWhatPythonComputes) {
  for (const std::int64_t depth : {18, 20, 50}) {
    ResNet model(ResNetOptions{.depth = depth, .classes = 5});
    testing::fill_by_formula(*model);
    const auto name = "resnet" + std::to_string(depth);
    const auto images = testing::wave({2, 3, 40, 37}, 0);
    testing::expect_golden_names(name, *model);
    testing::expect_golden(name, "train", model->forward(images));
    model->eval();  // with the running statistics of the pass before
    testing::expect_golden(name, "eval", model->forward(images));
  }
}

TEST(ResNet, RefusesWrongOptionsAndInputs) {
  EXPECT_THAT(error_of([] { ResNet(ResNetOptions{.depth = 19}); }),
              HasSubstr("depth: expected 18, 20, 34 or 50, got 19"));
  EXPECT_THAT(error_of([] { ResNet(ResNetOptions{.classes = 0}); }),
              HasSubstr("classes: expected a positive integer, got 0"));
  EXPECT_THAT(error_of([] { ResNet(ResNetOptions{.channels = -1}); }), HasSubstr("channels"));
  EXPECT_THAT(error_of([] {
                ResNet()->forward(torch::zeros({3, 32, 32}));
              }),
              HasSubstr("got 3 dimensions"));
}

}  // namespace
}  // namespace lockstep::network
