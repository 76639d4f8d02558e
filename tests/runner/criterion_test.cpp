#include "lockstep/runner/criterion.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Criterion, TakesAModuleAndAFunction) {
  const auto outputs = torch::randn({5, 3});
  const auto targets = torch::tensor({0, 1, 2, 1, 0});
  const Criterion module = torch::nn::CrossEntropyLoss();
  const Criterion function = [](const torch::Tensor& x, const torch::Tensor& y) {
    return torch::cross_entropy_loss(x, y);
  };
  EXPECT_TRUE(module(outputs, targets).equal(function(outputs, targets)));
  EXPECT_FALSE(Criterion());
}

TEST(Criterion, ItsClassWeightsAreSavedAndLoaded) {
  const auto make = [](float first) {
    return torch::nn::CrossEntropyLoss(
        torch::nn::CrossEntropyLossOptions().weight(torch::tensor({first, 1.0f, 1.0f})));
  };
  const Criterion a = make(5), b = make(1);
  b.load_state(a.state());
  const auto outputs = torch::randn({5, 3});
  const auto targets = torch::tensor({0, 1, 2, 1, 0});
  EXPECT_TRUE(a(outputs, targets).equal(b(outputs, targets)));
  EXPECT_THROW(b.load_state({{"weight", torch::ones({4})}}), CheckpointError);
}

}  // namespace
}  // namespace lockstep
