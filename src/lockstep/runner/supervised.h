// The runner for features and targets: computes the forward and the criterion.
#pragma once

#include <string>

#include "lockstep/runner/runner.h"

namespace lockstep {

class SupervisedRunner : public Runner {
 public:
  explicit SupervisedRunner(SupervisedKeys keys = {}) : keys_(std::move(keys)) {}

  const SupervisedKeys& keys() const { return keys_; }

  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>();
  }

 protected:
  void handle_batch(State& state) override;
  Batch predict_batch(const Model& model, const Batch& batch) override;
  std::string loss_key() const override { return keys_.loss_key; }
  // Nothing for a derived class, because its handle_batch may do anything. If it does not, override
  // this, too, and return keys().
  std::optional<SupervisedKeys> batch_keys() const override;

  // Whether your own handle_batch calls this one and then computes gradients of parameters itself
  // (for example torch::autograd::grad for a penalty). Return true then. If it is false, known
  // layers leave their parameters out of the graph, which is faster and gives the same bits.
  virtual bool uses_gradients() const { return false; }

 private:
  SupervisedKeys keys_;
};

}  // namespace lockstep
