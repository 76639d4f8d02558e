#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

double lr_after(const std::string& scheduler, int steps) {
  torch::Tensor weight = torch::ones({1}, torch::requires_grad());
  optim::FlatParameters parameters({{"w", weight}});
  const auto optimizer =
      optim::OptimizerSpec(optim::SGD{.lr = 1.0, .momentum = 0.9}).make(parameters);
  const auto made = targets()
                        .schedulers.make(node(scheduler))
                        .make(*optimizer, {.num_epochs = 4, .steps_per_epoch = 1});
  for (int i = 0; i < steps; ++i)
    made->step(made->needs_metric() ? std::optional(1.0) : std::nullopt);
  return optimizer->lr();
}

TEST(Schedulers, OptionsReachThem) {
  EXPECT_DOUBLE_EQ(lr_after("{StepLR: {step_size: 2, gamma: 0.5}}", 4), 0.25);
  EXPECT_DOUBLE_EQ(lr_after("{MultiStepLR: {milestones: [1, 3], gamma: 0.5}}", 3), 0.25);
  EXPECT_DOUBLE_EQ(lr_after("{ExponentialLR: {gamma: 0.5}}", 3), 0.125);
  EXPECT_NEAR(lr_after("CosineAnnealingLR", 4), 0.0, 1e-9);
  EXPECT_DOUBLE_EQ(lr_after("{LinearLR: {start_factor: 0.5, total_iters: 2}}", 2), 1.0);
  EXPECT_NEAR(lr_after("{OneCycleLR: {max_lr: 2, div_factor: 10}}", 0), 0.2, 1e-9);
  EXPECT_DOUBLE_EQ(lr_after("{ReduceLROnPlateau: {factor: 0.5, patience: 1}}", 4), 0.5);
}

TEST(Schedulers, AreCheckedBeforeTheyAreUsed) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().schedulers.make(node(text)); });
  };
  EXPECT_THAT(error("StepLR"), HasSubstr("step_size is missing"));
  EXPECT_THAT(error("{OneCycleLR: {max_lr: 1, pct_start: 2}}"),
              HasSubstr("it/OneCycleLR/pct_start"));
  EXPECT_THAT(error("{StepLR: {step_size: 1, per: step}}"),
              HasSubstr("expected epoch or batch, got 'step'"));
  EXPECT_THAT(error("{OneCycleLR: {max_lr: 1, anneal: cosine}}"), HasSubstr("did you mean 'cos'"));
}

}  // namespace
}  // namespace lockstep::recipe
