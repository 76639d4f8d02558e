#include "lockstep/compute/pooling.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/compute/switches.h"

namespace lockstep::compute {
namespace {

namespace nn = torch::nn;

bool is_ours(const torch::Tensor& pooled) {
  return pooled.grad_fn() != nullptr && pooled.grad_fn()->name() == "LockstepMaxPoolBackward";
}

class Pooling : public ::testing::Test {
 protected:
  Pooling() {
    install_pooling();
    torch::manual_seed(4);
  }
};

// Compares the same call with the switch on and off.
using Pool = std::function<torch::Tensor(const torch::Tensor&)>;

void expect_same_both_ways(const torch::Tensor& input, const Pool& pool, bool ours) {
  const auto run = [&] {
    const auto x = input.clone().requires_grad_();
    const auto y = pool(x);
    const auto grad = torch::arange(1, y.numel() + 1, torch::kFloat).to(y.dtype()).view(y.sizes());
    return std::pair(y, torch::autograd::grad({y}, {x}, {grad})[0]);
  };
  const auto [fast, fast_grad] = run();
  EXPECT_EQ(is_ours(fast), ours);
  const WithoutSpeedup without(Speedup::kPool);
  const auto [slow, slow_grad] = run();
  EXPECT_FALSE(is_ours(slow));
  EXPECT_TRUE(fast.equal(slow));
  EXPECT_TRUE(fast_grad.equal(slow_grad));
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(pool(input).equal(slow));
}

TEST_F(Pooling, LayersOfLibTorchUseIt) {
  expect_same_both_ways(torch::randn({2, 3, 12, 14}), nn::MaxPool2d(2), true);
  expect_same_both_ways(torch::randn({3, 12, 14}), nn::MaxPool2d(2), true);
  expect_same_both_ways(torch::randn({2, 3, 13, 15}),
                        nn::MaxPool2d(nn::MaxPool2dOptions({3, 2}).stride({2, 3}).padding({1, 0})),
                        true);
  expect_same_both_ways(torch::randn({2, 3, 13, 15}),
                        nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).ceil_mode(true)), true);
  expect_same_both_ways(torch::randn({2, 3, 9, 9, 9}),
                        nn::MaxPool3d(nn::MaxPool3dOptions(2).padding(1)), true);
  expect_same_both_ways(torch::randn({3, 8, 8, 8}), nn::MaxPool3d(2), true);
}

TEST_F(Pooling, WhatItCannotDoGoesTheOldWay) {
  expect_same_both_ways(torch::randn({2, 3, 8, 8}, torch::kFloat64), nn::MaxPool2d(2), false);
  expect_same_both_ways(
      torch::randn({2, 3, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast).detach(),
      [](const torch::Tensor& x) {
        return torch::max_pool2d(x.contiguous(torch::MemoryFormat::ChannelsLast), {2, 2});
      },
      false);
  expect_same_both_ways(torch::randn({1, 1, 40, 40}), nn::MaxPool2d(20), false);
  EXPECT_THROW(torch::max_pool2d(torch::randn({1, 1, 4, 4}), {2, 2}, {2, 2}, {2, 2}), c10::Error);
  EXPECT_THROW(torch::max_pool2d(torch::randn({1, 1, 1, 1}), {2, 2}), c10::Error);
}

TEST_F(Pooling, AGradientHasAGradient) {
  const auto run = [] {
    const auto x = torch::arange(32, torch::kFloat).sin().view({1, 2, 4, 4}).requires_grad_();
    const auto y = torch::max_pool2d(x * x, {2, 2});
    const auto grad = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({grad.square().sum()}, {x})[0];
  };
  const auto fast = run();
  const WithoutSpeedup without(Speedup::kPool);
  EXPECT_TRUE(fast.equal(run()));
}

TEST_F(Pooling, AnInputThatWasChangedIsRefused) {
  const auto x = torch::randn({1, 1, 4, 4}).requires_grad_();
  auto y = x * 2;
  const auto pooled = torch::max_pool2d(y, {2, 2});
  y.mul_(3);
  EXPECT_THROW(pooled.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace lockstep::compute
