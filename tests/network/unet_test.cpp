#include "lockstep/network/unet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "tests/network/support.h"
#include "tests/support/allocated_peak.h"

namespace lockstep::network {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(UNet, ComputesWhatPythonComputes) {
  UNet images(UNetOptions{.in = 2, .out = 3, .width = 4, .depth = 2});
  testing::fill_by_formula(*images);
  testing::expect_golden_names("unet2d", *images);
  testing::expect_golden("unet2d", "train", images->forward(testing::wave({2, 2, 9, 6}, 0)));
  images->eval();
  testing::expect_golden("unet2d", "eval", images->forward(testing::wave({2, 2, 9, 6}, 0)));

  UNet volumes(UNetOptions{
      .dimensions = 3, .in = 1, .out = 2, .width = 2, .depth = 1, .norm = UNetNorm::kNone});
  testing::fill_by_formula(*volumes);
  testing::expect_golden_names("unet3d", *volumes);
  testing::expect_golden("unet3d", "train", volumes->forward(testing::wave({1, 1, 3, 4, 5}, 0)));
}

TEST(UNet, KeepsAnySizeWithAnyNorm) {
  for (const std::int64_t dimensions : {2, 3}) {
    for (const auto norm :
         {UNetNorm::kBatch, UNetNorm::kInstance, UNetNorm::kGroup, UNetNorm::kNone}) {
      SCOPED_TRACE(static_cast<int>(norm));
      torch::manual_seed(1);
      UNet model(UNetOptions{
          .dimensions = dimensions, .in = 2, .out = 3, .width = 8, .depth = 2, .norm = norm});
      const std::vector<std::int64_t> sides = {11, 8, 13};
      std::vector<std::int64_t> sizes = {2, 2};
      sizes.insert(sizes.end(), sides.begin(), sides.begin() + dimensions);
      const auto output = model->forward(torch::randn(sizes));
      sizes[1] = 3;
      EXPECT_EQ(output.sizes().vec(), sizes);
      testing::expect_gradients_everywhere(*model, output);
    }
  }
}

TEST(UNet, HasTheSameBitsIfActivationsAreComputedAgain) {
  UNetOptions options{.dimensions = 3, .in = 2, .out = 3, .width = 4, .depth = 2};
  std::vector<std::vector<torch::Tensor>> results(2);
  for (const bool checkpoints : {false, true}) {
    options.checkpoint_activations = checkpoints;
    torch::manual_seed(1);
    UNet model(options);
    const auto output = model->forward(torch::randn({2, 2, 8, 9, 8}));
    output.square().mean().backward();
    auto& all = results[checkpoints ? 1 : 0];
    all.push_back(output.detach());
    for (const auto& parameter : model->parameters()) all.push_back(parameter.grad());
    for (const auto& buffer : model->buffers()) all.push_back(buffer);
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(results[0][i].equal(results[1][i])) << i;
  }
}

TEST(UNet, NeedsLessMemoryIfActivationsAreComputedAgain) {
  const auto peak = [](bool checkpoints) {
    UNet model(UNetOptions{
        .dimensions = 3, .width = 8, .depth = 2, .checkpoint_activations = checkpoints});
    const auto input = torch::randn({1, 1, 24, 24, 24});
    const auto step = [&] { model->forward(input).square().mean().backward(); };
    step();  // allocates the gradients
    return static_cast<double>(allocated_peak_of(step));
  };
  const double kept = peak(false);
  const double again = peak(true);
  // The activations of the largest level exist in any case, so little is saved. How little depends
  // on the size of the net and on what the convolutions of this LibTorch allocate. The bound is
  // loose, so that it only fails if nothing is saved; the guide has the figures of a larger net.
  EXPECT_LT(again, 0.98 * kept) << again << " " << kept;
}

TEST(UNet, InstancesAndGroupsTreatSamplesAlone) {
  for (const auto norm : {UNetNorm::kInstance, UNetNorm::kGroup}) {
    torch::manual_seed(1);
    UNet model(UNetOptions{.width = 8, .depth = 1, .norm = norm});
    const auto input = torch::randn({2, 1, 8, 8});
    EXPECT_TRUE(model->forward(input).narrow(0, 0, 1).allclose(
        model->forward(input.narrow(0, 0, 1)), 1e-4, 1e-5));
  }
}

TEST(UNet, RefusesWrongOptionsAndInputs) {
  const auto error = [](const UNetOptions& options) { return error_of([&] { UNet{options}; }); };
  EXPECT_THAT(error({.dimensions = 4}), HasSubstr("dimensions: expected 2 or 3, got 4"));
  EXPECT_THAT(error({.width = 12, .norm = UNetNorm::kGroup}),
              HasSubstr("width: expected a multiple of 8"));
  EXPECT_THAT(error({.depth = 0}), HasSubstr("depth: expected an integer from 1 to 10, got 0"));
  EXPECT_THAT(error({.in = 0}), HasSubstr("in: expected a positive integer, got 0"));
  UNet model(UNetOptions{.in = 2, .width = 2, .depth = 3});
  EXPECT_THAT(error_of([&] {
                model->forward(torch::zeros({1, 2, 8, 7}));
              }),
              HasSubstr("sides of at least 8, got Float [1, 2, 8, 7]"));
  EXPECT_THAT(error_of([&] {
                model->forward(torch::zeros({1, 1, 8, 8}));
              }),
              HasSubstr("2 channels"));
  EXPECT_THAT(error_of([&] {
                model->forward(torch::zeros({2, 8, 8}));
              }),
              HasSubstr("4 dimensions"));
}

}  // namespace
}  // namespace lockstep::network
