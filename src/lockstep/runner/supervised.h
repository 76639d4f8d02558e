// The runner for features and targets: computes the forward and the criterion. Its keys may name
// several inputs, outputs and losses (train/supervised_keys.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/runner/runner.h"

namespace lockstep {

class SupervisedRunner : public Runner {
 public:
  // Throws ConfigError for keys that contradict each other.
  explicit SupervisedRunner(SupervisedKeys keys = {});

  const SupervisedKeys& keys() const { return keys_; }

  // Nothing for a derived class, whose handle_batch and handlers may add any metric.
  std::optional<std::vector<std::string>> metric_names() const override;

  // The keys and the losses.
  std::string agreed_options() const override { return describe(keys_); }

 protected:
  void handle_batch(State& state) override;
  Batch predict_batch(const Model& model, const Batch& batch) override;
  std::string loss_key() const override { return keys_.loss_key; }
  // Nothing for a derived class, because its handle_batch may do anything. If it does not, override
  // this, too, and return keys().
  std::optional<SupervisedKeys> batch_keys() const override;

  // Not about on_backward (see overrides_on_backward()): whether your own handle_batch calls this
  // one and then computes gradients of parameters itself
  // (for example torch::autograd::grad for a penalty). Return true then. If it is false, known
  // layers leave their parameters out of the graph, which is faster and gives the same bits.
  virtual bool uses_gradients() const { return false; }

 private:
  SupervisedKeys keys_;
  std::vector<LossTerm> terms_;  // of the loss
};

}  // namespace lockstep
