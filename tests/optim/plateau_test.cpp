#include "lockstep/optim/plateau.h"

#include "tests/optim/schedule.h"

namespace lockstep::optim {
namespace {

using namespace testing;

TEST(ReduceLROnPlateau, FollowsPyTorch) {
  expect_golden_schedule("ReduceLROnPlateau", [](const nlohmann::json& options) {
    const ReduceLROnPlateau defaults;
    return ReduceLROnPlateau{.minimize = options.value("mode", "min") == "min",
                             .factor = options.value("factor", defaults.factor),
                             .patience = options.value("patience", defaults.patience),
                             .threshold = options.value("threshold", defaults.threshold),
                             .threshold_relative = options.value("threshold_mode", "rel") == "rel",
                             .cooldown = options.value("cooldown", defaults.cooldown),
                             .min_lr = options.value("min_lr", defaults.min_lr),
                             .eps = options.value("eps", defaults.eps)};
  });
}

TEST(ReduceLROnPlateau, NeedsAMetric) {
  Schedule schedule(ReduceLROnPlateau{});
  EXPECT_TRUE(schedule.scheduler->needs_metric());
  EXPECT_EQ(message_of<Error>([&] { schedule.scheduler->step(); }),
            "scheduler ReduceLROnPlateau: step: expected a metric, got none");
}

TEST(ReduceLROnPlateau, NaNIsNoImprovement) {
  Schedule schedule(ReduceLROnPlateau{.factor = 0.5, .patience = 1});
  schedule.scheduler->step(1.0);
  schedule.scheduler->step(NAN);
  EXPECT_EQ(schedule.lr(), 0.05);
  schedule.scheduler->step(NAN);
  EXPECT_EQ(schedule.lr(), 0.025);
}

TEST(ReduceLROnPlateau, NamesABadValue) {
  EXPECT_EQ(schedule_error(ReduceLROnPlateau{.factor = 1.0}),
            "scheduler ReduceLROnPlateau: factor: expected a number in [0, 1), got 1");
  EXPECT_EQ(schedule_error(ReduceLROnPlateau{.patience = -1}),
            "scheduler ReduceLROnPlateau: patience: expected an integer >= 0, got -1");
}

}  // namespace
}  // namespace lockstep::optim
