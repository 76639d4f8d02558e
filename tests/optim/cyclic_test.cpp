#include "lockstep/optim/cyclic.h"

#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;
using nlohmann::json;

CyclicLR parse_cyclic(const json& options) {
  const std::string mode = options.value("mode", "triangular");
  CyclicLR cyclic{.base_lr = options["base_lr"].get<double>(),
                  .max_lr = options["max_lr"].get<double>(),
                  .step_size_up = options["step_size_up"],
                  .gamma = options.value("gamma", 1.0),
                  .cycle_momentum = options.value("cycle_momentum", true),
                  .base_momentum = options.value("base_momentum", 0.8),
                  .max_momentum = options.value("max_momentum", 0.9)};
  if (options.contains("step_size_down")) {
    cyclic.step_size_down = options["step_size_down"].get<std::int64_t>();
  }
  if (mode == "triangular2") cyclic.mode = CycleMode::kTriangular2;
  if (mode == "exp_range") cyclic.mode = CycleMode::kExpRange;
  return cyclic;
}

TEST(CyclicLR, FollowsPyTorch) {
  expect_golden_schedule("CyclicLR", parse_cyclic);
}

TEST(CyclicLR, BeginsWithTheOptimizersRateByDefault) {
  Schedule schedule(CyclicLR{.max_lr = 0.25, .step_size_up = 2});
  EXPECT_EQ(schedule.lr(), 0.05);
  EXPECT_EQ(schedule.training.optimizer->momentum(), 0.9);
  EXPECT_EQ(schedule.scheduler->per(), Per::kBatch);
  for (int i = 0; i < 2; ++i) schedule.scheduler->step();
  EXPECT_DOUBLE_EQ(schedule.lr(), 0.25);
  EXPECT_DOUBLE_EQ(*schedule.training.optimizer->momentum(), 0.8);
}

TEST(CyclicLR, RefusesAStateOfAnotherCycle) {
  Schedule short_cycle(CyclicLR{.max_lr = 0.25, .step_size_up = 2});
  Schedule long_cycle(CyclicLR{.max_lr = 0.25, .step_size_up = 5});
  EXPECT_EQ(message_of<CheckpointError>(
                [&] { long_cycle.scheduler->load_state(short_cycle.scheduler->state()); }),
            "scheduler CyclicLR: step_size_up is 5, in the checkpoint it is 2; keep it");
}

TEST(CyclicLR, NamesABadValue) {
  EXPECT_EQ(schedule_error(CyclicLR{}),
            "scheduler CyclicLR: max_lr: expected a number > 0, got none");
  EXPECT_EQ(schedule_error(CyclicLR{.max_lr = 0.01}),
            "scheduler CyclicLR: max_lr: expected a number >= base_lr, which is 0.05, got 0.01");
  EXPECT_EQ(schedule_error(CyclicLR{.max_lr = 1.0, .step_size_up = 0}),
            "scheduler CyclicLR: step_size_up: expected a positive integer, got 0");
  EXPECT_EQ(schedule_error(CyclicLR{.max_lr = 1.0, .gamma = 2.0}),
            "scheduler CyclicLR: gamma: expected a number in (0, 1], got 2");
  EXPECT_EQ(message_of<ConfigError>([] { Schedule(CyclicLR{.max_lr = 1.0}, {}, Adagrad{}); }),
            "scheduler CyclicLR: cycle_momentum: expected an optimizer with momentum, got Adagrad; "
            "set cycle_momentum to false");
}

}  // namespace
}  // namespace lockstep::optim
