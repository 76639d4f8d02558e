// The usual metric of the run's criterion.
#pragma once

#include <memory>
#include <string>

#include "lockstep/callback/classification.h"

namespace lockstep {

struct DefaultMetricCallbackOptions {
  std::string input_key = "logits";    // the model's outputs in the batch
  std::string target_key = "targets";  // the expected outputs
};

// Adds the metrics that belong to the criterion of the run:
//
//   CrossEntropyLoss, NLLLoss                  accuracy01
//   BCEWithLogitsLoss, BCELoss                 accuracy of all numbers, with the threshold 0.5
//   MSELoss, L1Loss, SmoothL1Loss, HuberLoss   mae, mse, rmse, r2
//
// accuracy01 needs outputs [N, C]; for maps and sequences of classes, use PixelAccuracyCallback.
// With another criterion, with several, or without one, the run is refused before it starts.
class DefaultMetricCallback : public Callback {
 public:
  explicit DefaultMetricCallback(DefaultMetricCallbackOptions options = {});

  CallbackTraits traits() const override;
  std::string agreed_options() const override;
  std::optional<Better> better(std::string_view metric) const override;
  Metrics running_metrics() const override;
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_loader_start(State& state) override { chosen_->on_loader_start(state); }
  void on_batch_end(State& state) override { chosen_->on_batch_end(state); }
  void on_loader_end(State& state) override { chosen_->on_loader_end(state); }
  void gather(comm::Communicator& communicator) override { chosen_->gather(communicator); }
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  // Throws ConfigError if there is none.
  const std::shared_ptr<Callback>& choose(const Criterion& criterion) const;

  // One for each kind of criterion.
  std::shared_ptr<Callback> of_classes_, of_logits_, of_probabilities_, of_numbers_;
  DefaultMetricCallbackOptions options_;
  std::shared_ptr<Callback> chosen_;  // null before the run starts
  StateDict loaded_;                  // is loaded when the metric is chosen
};

}  // namespace lockstep
