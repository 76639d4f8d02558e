#include "lockstep/optim/scale_lr.h"

#include <torch/optim.h>

#include "lockstep/optim/describe.h"
#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;

void expect_scaled(const SchedulerSpec& from, const SchedulerSpec& to) {
  EXPECT_EQ(describe(scale_lr(from, 0.5)), describe(to));
}

TEST(ScaleLr, ScalesTheRatesThatASchedulerNames) {
  expect_scaled({}, {});
  expect_scaled(OneCycleLR{.max_lr = 1.0}, OneCycleLR{.max_lr = 0.5});
  expect_scaled(CyclicLR{.max_lr = 1.0}, CyclicLR{.max_lr = 0.5});
  expect_scaled(CyclicLR{.base_lr = 0.5, .max_lr = 1.0}, CyclicLR{.base_lr = 0.25, .max_lr = 0.5});
  expect_scaled(CosineAnnealingLR{.eta_min = 1.0}, CosineAnnealingLR{.eta_min = 0.5});
  expect_scaled(CosineAnnealingWarmRestarts{.t_0 = 3, .eta_min = 1.0},
                CosineAnnealingWarmRestarts{.t_0 = 3, .eta_min = 0.5});
  expect_scaled(ReduceLROnPlateau{.min_lr = 1.0}, ReduceLROnPlateau{.min_lr = 0.5});
  expect_scaled(warmup(5, OneCycleLR{.max_lr = 1.0}), warmup(5, OneCycleLR{.max_lr = 0.5}));
}

TEST(ScaleLr, LeavesFactorsOfTheOptimizersRate) {
  for (const SchedulerSpec& spec :
       std::vector<SchedulerSpec>{StepLR{.step_size = 3}, MultiStepLR{.milestones = {2}},
                                  ExponentialLR{.gamma = 0.5}, LinearLR{}, PolynomialLR{}}) {
    expect_scaled(spec, spec);
  }
  const SchedulerSpec function =
      scale_lr(FunctionLR{.factor = [](std::int64_t, const ScheduleContext&) { return 0.5; }}, 0.5);
  EXPECT_EQ(Schedule(function).lr(), 0.025);
  const SchedulerSpec factory = [](Optimizer& optimizer, const ScheduleContext& run) {
    return SchedulerSpec(OneCycleLR{.max_lr = 1.0, .total_steps = 30}).make(optimizer, run);
  };
  EXPECT_NEAR(Schedule(scale_lr(factory, 0.5)).lr(), 1.0 / 25.0, 1e-12);
}

TEST(IsMadeAlready, IsTrueForATorchOptimizerOnly) {
  const auto made = std::make_shared<torch::optim::SGD>(
      std::vector{torch::ones({2}).requires_grad_()}, torch::optim::SGDOptions(0.1));
  EXPECT_TRUE(is_made_already(made));
  EXPECT_TRUE(is_made_already(Lookahead{.optimizer = made}));
  EXPECT_FALSE(is_made_already(Lookahead{.optimizer = SGD{}}));
  EXPECT_FALSE(is_made_already(SGD{}));
  EXPECT_FALSE(is_made_already({}));
}

}  // namespace
}  // namespace lockstep::optim
