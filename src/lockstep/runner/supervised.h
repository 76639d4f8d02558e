// The runner for features and targets: forward, criterion, done.
#pragma once

#include <string>

#include "lockstep/runner/runner.h"

namespace lockstep {

// Under which names a batch holds what.
struct SupervisedKeys {
  std::string input_key = "features";  // goes into the model
  std::string output_key = "logits";   // comes out of it
  std::string target_key = "targets";  // what should have come out
  std::string loss_key = "loss";       // the criterion's verdict
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

  // Whether your own handle_batch calls this one's and then asks autograd for gradients of
  // parameters itself (torch::autograd::grad, say, for a penalty). Then say so: where it does not,
  // known layers leave their parameters out of the graph, which is faster and gives the same bits.
  virtual bool uses_gradients() const { return false; }

 private:
  SupervisedKeys keys_;
};

}  // namespace lockstep
