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

 protected:
  void handle_batch(State& state) override;
  Batch predict_batch(const Model& model, const Batch& batch) override;
  std::string loss_key() const override { return keys_.loss_key; }

 private:
  bool adds_only_loss() const override;

  SupervisedKeys keys_;
};

}  // namespace lockstep
