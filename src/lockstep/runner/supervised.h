// The runner for features and targets: computes the forward and the criterion.
#pragma once

#include <string>

#include "lockstep/runner/runner.h"

namespace lockstep {

// The keys in the batch.
struct SupervisedKeys {
  std::string input_key = "features";  // goes into the model
  std::string output_key = "logits";   // the model's output
  std::string target_key = "targets";  // the expected output
  std::string loss_key = "loss";       // the criterion's result
};

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

  // Whether your own handle_batch calls this one and then computes gradients of parameters itself
  // (for example torch::autograd::grad for a penalty). Return true then. If it is false, known
  // layers leave their parameters out of the graph, which is faster and gives the same bits.
  virtual bool uses_gradients() const { return false; }

 private:
  SupervisedKeys keys_;
};

}  // namespace lockstep
