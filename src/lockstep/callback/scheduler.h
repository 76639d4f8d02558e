// Changes the learning rate: steps the run's scheduler after each update or after each epoch.
// train() adds this callback itself if a scheduler is given. Pass your own to choose the metric of
// a plateau.
#pragma once

#include <optional>

#include "lockstep/optim/scheduler.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct SchedulerCallbackOptions {
  std::optional<MetricKey> metric = std::nullopt;  // for a plateau; default: valid_loader's
};

class SchedulerCallback : public Callback {
 public:
  bool uses_gradients() const override { return false; }
  explicit SchedulerCallback(SchedulerCallbackOptions options = {});

  Order order() const override { return Order::kScheduler; }
  bool needs_training() const override { return true; }
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>();
  }
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_step(State& state) override;
  void on_epoch_end(State& state) override;

 private:
  // The metric of a plateau in this run.
  const std::optional<MetricKey>& metric(const State& state) const;
  bool minimizes(const State& state) const;

  SchedulerCallbackOptions options_;
};

}  // namespace lockstep
