// Changes the learning rates: steps each scheduler of the run after each update of its optimizer or
// after each epoch.
// train() adds this callback itself if a scheduler is given. Pass your own to choose the metric of
// a plateau.
#pragma once

#include <optional>
#include <string>

#include "lockstep/optim/scheduler.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct SchedulerCallbackOptions {
  std::optional<MetricKey> metric = std::nullopt;  // for a plateau; default: valid_loader's
};

class SchedulerCallback : public Callback {
 public:
  explicit SchedulerCallback(SchedulerCallbackOptions options = {});

  CallbackTraits traits() const override {
    return {.order = Order::kScheduler,
            .uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_step(State& state) override;
  void on_epoch_end(State& state) override;

 private:
  // The metric of a plateau in this run.
  const std::optional<MetricKey>& metric(const State& state) const;
  void check(const State& state, const optim::Scheduler& scheduler) const;
  // If the plateau needs a direction.
  Selection selection_in(const State& state, const optim::Scheduler& scheduler) const;

  SchedulerCallbackOptions options_;
};

}  // namespace lockstep
