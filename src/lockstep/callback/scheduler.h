// Changes the learning rates: steps each scheduler of the run after each update of its optimizer or
// after each epoch.
// train() adds this callback itself if a scheduler is given. Pass your own to choose the metric of
// a plateau.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "lockstep/optim/scheduler.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct SchedulerCallbackOptions {
  std::optional<MetricKey> metric = std::nullopt;  // for plateaus; default: valid_loader's
  // If several optimizers have plateaus: the metrics of some of them, by the name of the optimizer.
  std::map<std::string, MetricKey> metrics = {};
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
  // A scheduler by the name of its optimizer.
  struct Item {
    const std::string& name;
    optim::Scheduler& scheduler;
  };
  static std::string asked_by(const State& state, const Item& item);  // for messages
  // The metric that the options give it.
  std::optional<MetricKey> own_metric(const std::string& name) const;
  // Its metric in this run.
  std::optional<MetricKey> metric(const State& state, const std::string& name) const;
  void check_names(const State& state) const;
  void check(const State& state, const Item& item) const;
  // If the plateau needs a direction.
  Selection selection_in(const State& state, const Item& item) const;

  SchedulerCallbackOptions options_;
};

}  // namespace lockstep
