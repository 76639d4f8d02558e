#include "lockstep/optim/chained_scheduler.h"

#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using nlohmann::json;

TEST(StepLR, FollowsPyTorch) {
  expect_golden_schedule("StepLR", [](const json& options) {
    return StepLR{.step_size = options["step_size"].get<std::int64_t>(),
                  .gamma = options.value("gamma", 0.1)};
  });
}

TEST(MultiStepLR, FollowsPyTorch) {
  expect_golden_schedule("MultiStepLR", [](const json& options) {
    return MultiStepLR{.milestones = options["milestones"].get<std::vector<std::int64_t>>(),
                       .gamma = options["gamma"]};
  });
}

TEST(ExponentialLR, FollowsPyTorch) {
  expect_golden_schedule("ExponentialLR", [](const json& options) {
    return ExponentialLR{.gamma = options["gamma"].get<double>()};
  });
}

TEST(CosineAnnealingLR, FollowsPyTorch) {
  expect_golden_schedule("CosineAnnealingLR", [](const json& options) {
    return CosineAnnealingLR{.t_max = options["T_max"].get<std::int64_t>(),
                             .eta_min = options.value("eta_min", 0.0)};
  });
}

TEST(LinearLR, FollowsPyTorch) {
  expect_golden_schedule("LinearLR", [](const json& options) {
    return LinearLR{.start_factor = options.value("start_factor", 1.0 / 3.0),
                    .end_factor = options.value("end_factor", 1.0),
                    .total_iters = options.value("total_iters", 5)};
  });
}

TEST(PolynomialLR, FollowsPyTorch) {
  expect_golden_schedule("PolynomialLR", [](const json& options) {
    return PolynomialLR{.total_iters = options["total_iters"].get<std::int64_t>(),
                        .power = options.value("power", 1.0)};
  });
}

TEST(CosineAnnealingWarmRestarts, FollowsPyTorch) {
  expect_golden_schedule("CosineAnnealingWarmRestarts", [](const json& options) {
    return CosineAnnealingWarmRestarts{.t_0 = options["T_0"].get<std::int64_t>(),
                                       .t_mult = options.value("T_mult", 1),
                                       .eta_min = options.value("eta_min", 0.0)};
  });
}

TEST(PolynomialLR, SpansTheRunByDefault) {
  Schedule schedule(PolynomialLR{.per = Per::kBatch}, {.num_epochs = 3, .steps_per_epoch = 4});
  for (int step = 0; step < 6; ++step) schedule.scheduler->step();
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.025);
  for (int step = 0; step < 6; ++step) schedule.scheduler->step();
  EXPECT_EQ(schedule.lr(), 0.0);
  schedule.scheduler->step();
  EXPECT_EQ(schedule.lr(), 0.0);
}

TEST(CosineAnnealingLR, SpansTheRunByDefault) {
  Schedule by_epoch(CosineAnnealingLR{.eta_min = 0.01}, {.num_epochs = 3, .steps_per_epoch = 4});
  for (int step = 0; step < 3; ++step) by_epoch.scheduler->step();
  EXPECT_DOUBLE_EQ(by_epoch.lr(), 0.01);
  Schedule by_batch(CosineAnnealingLR{.eta_min = 0.01, .per = Per::kBatch},
                    {.num_epochs = 3, .steps_per_epoch = 4});
  EXPECT_EQ(by_batch.scheduler->per(), Per::kBatch);
  for (int step = 0; step < 12; ++step) {
    EXPECT_GT(by_batch.lr(), 0.0101);
    by_batch.scheduler->step();
  }
  EXPECT_DOUBLE_EQ(by_batch.lr(), 0.01);
}

TEST(CosineAnnealingLR, RefusesAStateOfAnotherLength) {
  Schedule ten(CosineAnnealingLR{.t_max = 10});
  Schedule twenty(CosineAnnealingLR{.t_max = 20});
  EXPECT_EQ(
      message_of<CheckpointError>([&] { twenty.scheduler->load_state(ten.scheduler->state()); }),
      "scheduler CosineAnnealingLR: this schedule has 20 steps, the one in the checkpoint has 10");
}

TEST(ChainedScheduler, RefusesAnotherSchedulersState) {
  Schedule exponential(ExponentialLR{.gamma = 0.5});
  Schedule linear(LinearLR{});
  EXPECT_EQ(message_of<CheckpointError>(
                [&] { linear.scheduler->load_state(exponential.scheduler->state()); }),
            "scheduler LinearLR: expected its own state, found that of ExponentialLR");
}

TEST(ChainedScheduler, NamesABadValue) {
  EXPECT_EQ(schedule_error(StepLR{}),
            "scheduler StepLR: step_size: expected a positive integer, got none");
  EXPECT_EQ(schedule_error(StepLR{.step_size = -3}),
            "scheduler StepLR: step_size: expected a positive integer, got -3");
  EXPECT_EQ(schedule_error(MultiStepLR{.milestones = {3, 0}}),
            "scheduler MultiStepLR: milestones: expected positive integers, got 0");
  EXPECT_EQ(schedule_error(ExponentialLR{}),
            "scheduler ExponentialLR: gamma: expected a number >= 0, got none");
  EXPECT_EQ(schedule_error(ExponentialLR{.gamma = -0.5}),
            "scheduler ExponentialLR: gamma: expected a number >= 0, got -0.5");
  EXPECT_EQ(schedule_error(CosineAnnealingLR{.t_max = 0}),
            "scheduler CosineAnnealingLR: t_max: expected a positive integer, got 0");
  EXPECT_EQ(schedule_error(CosineAnnealingLR{}, {.num_epochs = 0}),
            "scheduler CosineAnnealingLR: expected a run with at least one step, got 0 epochs of 1 "
            "steps");
  EXPECT_EQ(schedule_error(LinearLR{.start_factor = 0.0}),
            "scheduler LinearLR: start_factor: expected a number > 0, got 0");
  EXPECT_EQ(schedule_error(PolynomialLR{.total_iters = 0}),
            "scheduler PolynomialLR: total_iters: expected a positive integer, got 0");
  EXPECT_EQ(schedule_error(CosineAnnealingWarmRestarts{}),
            "scheduler CosineAnnealingWarmRestarts: t_0: expected a positive integer, got none");
  EXPECT_EQ(schedule_error(CosineAnnealingWarmRestarts{.t_0 = 3, .t_mult = 0}),
            "scheduler CosineAnnealingWarmRestarts: t_mult: expected a positive integer, got 0");
  EXPECT_EQ(schedule_error(LinearLR{.end_factor = 1.5}),
            "scheduler LinearLR: end_factor: expected a number in [0, 1], got 1.5");
}

}  // namespace
}  // namespace lockstep::optim
