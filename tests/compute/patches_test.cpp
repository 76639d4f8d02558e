#include "lockstep/compute/patches.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::compute {
namespace {

// In two dimensions, LibTorch has both functions.
TEST(Patches, AreThoseOfUnfold) {
  torch::manual_seed(1);
  struct Case {
    std::int64_t height, width, kernel, stride, padding, dilation;
  };
  for (const Case& c : {Case{6, 7, 3, 1, 1, 1}, Case{16, 16, 2, 2, 1, 1}, Case{5, 9, 2, 2, 0, 1},
                        Case{9, 8, 3, 2, 2, 2}, Case{7, 20, 3, 4, 1, 1}, Case{1, 1, 2, 2, 1, 1}}) {
    const auto size = [&](std::int64_t in) {
      return (in + 2 * c.padding - c.dilation * (c.kernel - 1) - 1) / c.stride + 1;
    };
    const WindowGeometry g{.planes = 3,
                           .in = {1, c.height, c.width},
                           .out = {1, size(c.height), size(c.width)},
                           .kernel = {1, c.kernel, c.kernel},
                           .stride = {1, c.stride, c.stride},
                           .padding = {0, c.padding, c.padding},
                           .dilation = {1, c.dilation, c.dilation}};
    const auto input = torch::randn({1, 3, c.height, c.width});
    const auto expected = torch::im2col(input, {c.kernel, c.kernel}, {c.dilation, c.dilation},
                                        {c.padding, c.padding}, {c.stride, c.stride})[0];
    auto columns = torch::full({g.planes * g.taps(), g.out_size()}, 77.0F);
    gather_patches(g, input.data_ptr<float>(), columns.data_ptr<float>());
    EXPECT_TRUE(columns.equal(expected));
    EXPECT_EQ(g.are_separate(), c.stride >= (c.kernel - 1) * c.dilation + 1);
    if (!g.are_separate()) continue;
    auto back = torch::full_like(input, 77);
    scatter_patches(g, columns.data_ptr<float>(), back.data_ptr<float>());
    EXPECT_TRUE(back.equal(torch::col2im(expected.unsqueeze(0), {c.height, c.width},
                                         {c.kernel, c.kernel}, {c.dilation, c.dilation},
                                         {c.padding, c.padding}, {c.stride, c.stride})));
  }
}

TEST(Patches, OfThreeDimensionsMakeAConvolution) {
  torch::manual_seed(2);
  const auto input = torch::randn({1, 2, 5, 6, 7});
  const auto weight = torch::randn({4, 2, 2, 3, 2});
  const auto expected = torch::conv3d(input, weight, {}, {2, 1, 3}, {1, 0, 1});
  const WindowGeometry g{.planes = 2,
                         .in = {5, 6, 7},
                         .out = {expected.size(2), expected.size(3), expected.size(4)},
                         .kernel = {2, 3, 2},
                         .stride = {2, 1, 3},
                         .padding = {1, 0, 1}};
  auto columns = torch::empty({g.planes * g.taps(), g.out_size()});
  gather_patches(g, input.data_ptr<float>(), columns.data_ptr<float>());
  EXPECT_TRUE(
      torch::allclose(weight.flatten(1).mm(columns).view_as(expected), expected, 1e-5, 1e-5));
}

}  // namespace
}  // namespace lockstep::compute
