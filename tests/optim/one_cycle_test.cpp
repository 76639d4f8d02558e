#include "lockstep/optim/one_cycle.h"

#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(OneCycleLR, FollowsPyTorch) {
  expect_golden_schedule("OneCycleLR", [](const nlohmann::json& options) {
    const OneCycleLR defaults;
    return OneCycleLR{
        .max_lr = options["max_lr"].get<double>(),
        .total_steps = options["total_steps"].get<std::int64_t>(),
        .pct_start = options.value("pct_start", defaults.pct_start),
        .anneal =
            options.value("anneal_strategy", "cos") == "linear" ? Anneal::kLinear : Anneal::kCos,
        .cycle_momentum = options.value("cycle_momentum", true),
        .base_momentum = options.value("base_momentum", defaults.base_momentum),
        .max_momentum = options.value("max_momentum", defaults.max_momentum),
        .div_factor = options.value("div_factor", defaults.div_factor),
        .final_div_factor = options.value("final_div_factor", defaults.final_div_factor),
        .three_phase = options.value("three_phase", false)};
  });
}

TEST(OneCycleLR, SpansTheRunByDefaultAndEndsThere) {
  Schedule schedule(OneCycleLR{.max_lr = 0.1, .anneal = Anneal::kLinear},
                    {.num_epochs = 5, .steps_per_epoch = 4});
  EXPECT_EQ(schedule.scheduler->per(), Per::kBatch);
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.1 / 25);
  double highest = 0.0;
  for (int step = 1; step <= 20; ++step) {
    schedule.scheduler->step();
    highest = std::max(highest, schedule.lr());
  }
  EXPECT_DOUBLE_EQ(highest, 0.1);
  EXPECT_NEAR(schedule.lr(), 0.1 / 25 / 1e4, 1e-15);
  EXPECT_EQ(message_of<Error>([&] { schedule.scheduler->step(); }),
            "scheduler OneCycleLR: step 21 of a cycle of total_steps = 20");
}

TEST(OneCycleLR, CyclesAdamsBeta1) {
  Schedule schedule(OneCycleLR{.max_lr = 0.1, .total_steps = 10}, {}, Adam{});
  EXPECT_EQ(schedule.training.optimizer->momentum(), 0.95);
  schedule.scheduler->step();
  schedule.scheduler->step();
  EXPECT_DOUBLE_EQ(*schedule.training.optimizer->momentum(), 0.85);
}

TEST(OneCycleLR, NeedsMomentumToCycle) {
  const auto error = [](bool cycle_momentum) {
    return message_of<ConfigError>([&] {
      Schedule(OneCycleLR{.max_lr = 0.1, .total_steps = 10, .cycle_momentum = cycle_momentum}, {},
               Adagrad{});
    });
  };
  EXPECT_EQ(error(true),
            "scheduler OneCycleLR: cycle_momentum: expected an optimizer with momentum, got "
            "Adagrad; set cycle_momentum to false");
  EXPECT_EQ(error(false), "nothing was thrown");
}

TEST(OneCycleLR, RefusesAStateOfAnotherLength) {
  Schedule ten(OneCycleLR{.max_lr = 0.1, .total_steps = 10});
  Schedule twenty(OneCycleLR{.max_lr = 0.1, .total_steps = 20});
  EXPECT_EQ(
      message_of<CheckpointError>([&] { twenty.scheduler->load_state(ten.scheduler->state()); }),
      "scheduler OneCycleLR: this cycle has 20 steps, the one in the checkpoint has 10; keep "
      "num_epochs, or set total_steps to 10");
}

TEST(OneCycleLR, NamesABadValue) {
  EXPECT_EQ(schedule_error(OneCycleLR{}),
            "scheduler OneCycleLR: max_lr: expected a number > 0, got none");
  EXPECT_EQ(schedule_error(OneCycleLR{.max_lr = 0.1, .total_steps = 0}),
            "scheduler OneCycleLR: total_steps: expected a positive integer, got 0");
  EXPECT_EQ(schedule_error(OneCycleLR{.max_lr = 0.1, .pct_start = 1.5}),
            "scheduler OneCycleLR: pct_start: expected a number in [0, 1], got 1.5");
}

}  // namespace
}  // namespace lockstep::optim
