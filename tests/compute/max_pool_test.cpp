#include "lockstep/compute/max_pool.h"

#include <limits>

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace lockstep::compute {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  Extent in, kernel, stride, padding, dilation;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  for (const auto& extent : {c.in, c.kernel, c.stride, c.padding, c.dilation}) {
    out << extent[0] << 'x' << extent[1] << 'x' << extent[2] << ' ';
  }
  return out;
}

class MaxPool : public ::testing::TestWithParam<Case> {};

torch::IntArrayRef list(const Extent& extent) {
  return {extent.data(), extent.size()};
}

// An input with many equal values, so that it matters which of them is chosen.
torch::Tensor make_input(const Case& c, bool special) {
  torch::manual_seed(3);
  auto input = torch::randint(-4, 5, {2, 3, c.in[0], c.in[1], c.in[2]}).to(torch::kFloat);
  if (special) {
    auto flat = input.view({-1});
    for (std::int64_t i = 0; i < flat.size(0); i += 13) flat[i] = kNan;
    for (std::int64_t i = 5; i < flat.size(0); i += 3) flat[i] = -kInfinity;
  }
  return input;
}

TEST_P(MaxPool, IsTorchsToTheBitAndSoIsItsGradient) {
  const Case& c = GetParam();
  for (const bool relu : {false, true}) {
    for (const bool special : {false, true}) {
      const auto input = make_input(c, special).requires_grad_();
      const auto expected = torch::max_pool3d(relu ? torch::relu(input) : input, list(c.kernel),
                                              list(c.stride), list(c.padding), list(c.dilation));
      const auto grad = torch::randn_like(expected);
      const auto expected_grad = torch::autograd::grad({expected}, {input}, {grad})[0];

      WindowGeometry geometry{.planes = 6,
                              .in = c.in,
                              .out = {expected.size(2), expected.size(3), expected.size(4)},
                              .kernel = c.kernel,
                              .stride = c.stride,
                              .padding = c.padding,
                              .dilation = c.dilation};
      ASSERT_TRUE(can_choose(geometry));
      auto out = torch::full_like(expected, 77);
      auto chosen = torch::empty(expected.sizes(), torch::kUInt8);
      auto grad_in = torch::full_like(input, 77);
      max_pool(geometry, {.in = input.data_ptr<float>(),
                          .out = out.data_ptr<float>(),
                          .chosen = chosen.data_ptr<Chosen>(),
                          .relu = relu});
      max_pool_backward(geometry, {.grad_out = grad.data_ptr<float>(),
                                   .chosen = chosen.data_ptr<Chosen>(),
                                   .grad_in = grad_in.data_ptr<float>()});
      EXPECT_TRUE(out.nan_to_num(99).equal(expected.nan_to_num(99))) << relu << special;
      EXPECT_TRUE(torch::allclose(grad_in, expected_grad, 1e-6, 1e-6)) << relu << special;
      max_pool(geometry, {.in = input.data_ptr<float>(),
                          .out = out.zero_().data_ptr<float>(),
                          .chosen = nullptr,
                          .relu = relu});
      EXPECT_TRUE(out.nan_to_num(99).equal(expected.nan_to_num(99)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MaxPool,
                         ::testing::Values(
                             // adjacent windows, in numbers around the width of vectors
                             Case{{1, 4, 4}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
                             Case{{1, 28, 28}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
                             Case{{1, 7, 35}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
                             Case{{1, 2, 200}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}},
                             Case{{8, 8, 8}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}},
                             // with padding: windows of one element at the edges
                             Case{{9, 9, 9}, {2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}},
                             Case{{3, 3, 3}, {2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}},
                             Case{{1, 6, 6}, {1, 2, 2}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
                             Case{{1, 1, 1}, {1, 2, 2}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
                             // overlapping, dilated, with gaps
                             Case{{1, 12, 17}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
                             Case{{5, 12, 17}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
                             Case{{1, 12, 17}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 2, 3}},
                             Case{{4, 9, 11}, {2, 2, 2}, {3, 3, 3}, {0, 0, 0}, {1, 1, 1}},
                             Case{{1, 9, 9}, {1, 3, 3}, {1, 3, 3}, {0, 0, 0}, {1, 1, 1}},
                             Case{{1, 5, 9}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 2, 2}},
                             // narrower than the window: some of its elements are never inside
                             Case{{1, 1, 1}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
                             Case{{1, 1, 1}, {1, 3, 3}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}},
                             Case{{2, 2, 2}, {5, 5, 5}, {2, 2, 2}, {2, 2, 2}, {1, 1, 1}},
                             Case{{1, 3, 3}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}, {1, 1, 1}},
                             Case{{1, 2, 13}, {1, 2, 2}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}},
                             Case{{3, 4, 11}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}},
                             // enough planes for several threads
                             Case{{1, 200, 202}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}}));

TEST(CanChoose, NotAWindowOfMoreThan254ElementsOrOfNone) {
  EXPECT_TRUE(can_choose({.in = {1, 2, 127}, .kernel = {1, 2, 127}}));
  EXPECT_FALSE(can_choose({.in = {1, 15, 17}, .kernel = {1, 15, 17}}));
  EXPECT_FALSE(can_choose({.kernel = {1, 2, 1}, .padding = {0, 1, 0}, .dilation = {1, 2, 1}}));
}

}  // namespace
}  // namespace lockstep::compute
