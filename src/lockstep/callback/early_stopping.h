// Ends a run that no longer improves.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/optim/scheduler.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct EarlyStoppingCallbackOptions {
  // Epochs, or batches, in a row that have the metric and do not improve it.
  std::int64_t patience = 10;
  std::optional<MetricKey> metric = std::nullopt;  // default: valid_loader's valid_metric
  // Whether a smaller metric is better. Default: minimize_valid_metric if the metric is
  // valid_loader's, else as the metric says.
  std::optional<bool> minimize = std::nullopt;
  double min_delta = 1e-6;  // the smallest difference that counts as an improvement
  // With kBatch, every batch of the metric's loader is compared: the mean of the metric over all
  // its shards, which costs a small message. The run ends after that batch. The metric must be one
  // of batches, such as the loss.
  optim::Per per = optim::Per::kEpoch;
};

// An epoch or batch is better if its score is at least min_delta beyond the best one before it. NaN
// never is.
class EarlyStoppingCallback : public Callback {
 public:
  explicit EarlyStoppingCallback(EarlyStoppingCallbackOptions options = {});

  CallbackTraits traits() const override {
    return {.uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_batch_end(State& state) override;
  void on_step(State& state) override;
  void on_loader_end(State& state) override;
  void on_epoch_end(State& state) override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  Selection selection_in(const State& state) const;
  std::optional<double> mean_of_batch(const State& state);
  void note(double score);
  void stop_if_out_of_patience(State& state) const;

  EarlyStoppingCallbackOptions options_;
  Selection selection_;  // of the current run
  std::optional<double> best_;
  std::int64_t misses_ = 0;
  bool resumed_ = false;  // the members were loaded from the run that is resumed
  // The metric of this worker's shards of the current batch, with kBatch: value x weight, weight.
  std::map<std::int64_t, std::pair<double, double>> shards_;
};

}  // namespace lockstep
