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
  EXPECT_DOUBLE_EQ(lr_after("{PolynomialLR: {power: 2}}", 2), 0.25);
  EXPECT_DOUBLE_EQ(lr_after("{CosineAnnealingWarmRestarts: {t_0: 2}}", 4), 1.0);
  EXPECT_DOUBLE_EQ(lr_after("{CyclicLR: {max_lr: 3, step_size_up: 2, mode: triangular2}}", 2), 3.0);
  EXPECT_DOUBLE_EQ(lr_after("{CyclicLR: {max_lr: 3, step_size_up: 2, mode: triangular2}}", 6), 2.0);
}

TEST(Schedulers, CanFollowEachOther) {
  const std::string chain =
      "{SequentialLR: {schedulers: [{LinearLR: {start_factor: 0.5, total_iters: 2}}, "
      "{ExponentialLR: {gamma: 0.5}}], milestones: [2]}}";
  EXPECT_DOUBLE_EQ(lr_after(chain, 0), 0.5);
  EXPECT_DOUBLE_EQ(lr_after(chain, 2), 1.0);
  EXPECT_DOUBLE_EQ(lr_after(chain, 4), 0.25);
  EXPECT_DOUBLE_EQ(lr_after("{Warmup: {steps: 2, start_factor: 0.5}}", 1), 0.75);
  EXPECT_DOUBLE_EQ(lr_after("{Warmup: {steps: 2, per: epoch, then: {StepLR: {step_size: 1}}}}", 3),
                   0.1);
  EXPECT_DOUBLE_EQ(lr_after("{Warmup: {steps: 1, then: " + chain + "}}", 1), 0.5) << "nested";
  // A part that spans the rest of the run is accepted, whatever the length of the run.
  targets().schedulers.make(node("{Warmup: {steps: 5000, per: epoch, then: CosineAnnealingLR}}"));
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().schedulers.make(node(text)); });
  };
  EXPECT_THAT(error("{SequentialLR: {schedulers: [LinearLR, LinearLR], milestones: []}}"),
              HasSubstr("it/SequentialLR/milestones: expected 1 for 2 schedulers, got 0"));
  EXPECT_THAT(error("{SequentialLR: {schedulers: [LinerLR], milestones: []}}"),
              HasSubstr("did you mean 'LinearLR'"));
  EXPECT_THAT(error("Warmup"), HasSubstr("steps is missing"));
  EXPECT_THAT(error("{Warmup: {steps: 3, then: {StepLR: {step_size: 0}}}}"),
              HasSubstr("it/Warmup/then/StepLR/step_size"));
}

// A plugin adds its classes in the same way.
TEST(Schedulers, OfAUserHaveAName) {
  struct Options {
    double factor = 0.5;
  };
  targets().schedulers.add<Options>(
      "OnceOfUser", "Multiplies by a factor once.", {{"factor", &Options::factor, "the factor"}},
      [](const Options& o) {
        return [o](optim::Optimizer& optimizer, const optim::ScheduleContext& run) {
          return optim::SchedulerSpec(optim::MultiStepLR{.milestones = {1}, .gamma = o.factor})
              .make(optimizer, run);
        };
      });
  EXPECT_DOUBLE_EQ(lr_after("{OnceOfUser: {factor: 0.25}}", 3), 0.25);
  EXPECT_DOUBLE_EQ(lr_after("{Warmup: {steps: 2, then: OnceOfUser}}", 4), 0.5);
}

TEST(Schedulers, AreCheckedBeforeTheyAreUsed) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().schedulers.make(node(text)); });
  };
  EXPECT_THAT(error("StepLR"), HasSubstr("step_size is missing"));
  EXPECT_THAT(error("{OneCycleLR: {max_lr: 1, pct_start: 2}}"),
              HasSubstr("it/OneCycleLR/pct_start"));
  EXPECT_THAT(error("{CyclicLR: {max_lr: 1, mode: triangle}}"), HasSubstr("'triangular'"));
  EXPECT_THAT(error("{StepLR: {step_size: 1, per: step}}"),
              HasSubstr("expected epoch or batch, got 'step'"));
  EXPECT_THAT(error("{OneCycleLR: {max_lr: 1, anneal: cosine}}"), HasSubstr("did you mean 'cos'"));
}

}  // namespace
}  // namespace lockstep::recipe
