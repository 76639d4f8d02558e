// Runs a scheduler and compares it with PyTorch's (scripts/goldens/optim_schedulers.py).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/optim/scheduler.h"
#include "tests/optim/problem.h"

namespace lockstep::optim::testing {

struct Schedule {
  explicit Schedule(const SchedulerSpec& spec, const ScheduleContext& context = {},
                    const OptimizerSpec& optimizer = SGD{.lr = 0.05, .momentum = 0.9})
      : training(optimizer, torch::kFloat32), scheduler(spec.make(*training.optimizer, context)) {}

  double lr() const { return training.optimizer->lr(); }

  Training training;
  std::unique_ptr<Scheduler> scheduler;
};

inline std::optional<double> metric_for(const Scheduler& scheduler, const nlohmann::json& metric) {
  return scheduler.needs_metric() ? std::optional(metric.get<double>()) : std::nullopt;
}

// Checks every case of the golden file: the same learning rate and momentum after each step, also
// if the run is stopped at step 13 and resumed by a new scheduler and optimizer.
inline void expect_golden_schedule(
    const std::string& name, const std::function<SchedulerSpec(const nlohmann::json&)>& parse) {
  const nlohmann::json golden = load_golden("optim_schedulers.json");
  const auto& metrics = golden["metrics"];
  int cases = 0;
  for (const auto& item : golden["cases"]) {
    if (item["name"] != name) continue;
    ++cases;
    SCOPED_TRACE(name + item["options"].dump());
    const SchedulerSpec spec = parse(item["options"]);
    auto schedule = std::make_unique<Schedule>(spec);
    EXPECT_EQ(schedule->scheduler->name(), name);
    const auto expect_values = [&](std::size_t i) {
      const double lr = item["lr"][i];
      const double momentum = item["momentum"][item["momentum"].size() > 1 ? i : 0];
      EXPECT_NEAR(schedule->lr(), lr, 1e-12 * lr) << "after step " << i;
      EXPECT_NEAR(*schedule->training.optimizer->momentum(), momentum, 1e-12) << "after step " << i;
    };
    expect_values(0);
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      if (i == 13) {
        auto resumed = std::make_unique<Schedule>(spec);
        resumed->scheduler->load_state(schedule->scheduler->state());
        schedule = std::move(resumed);
      }
      schedule->scheduler->step(metric_for(*schedule->scheduler, metrics[i]));
      expect_values(i + 1);
    }
  }
  EXPECT_GE(cases, 1) << "in the golden file for " << name;
}

inline std::string schedule_error(const SchedulerSpec& spec, const ScheduleContext& context = {}) {
  return message_of<ConfigError>([&] { Schedule(spec, context); });
}

}  // namespace lockstep::optim::testing
