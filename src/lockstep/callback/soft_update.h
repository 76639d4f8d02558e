// Lets one network follow another one slowly: a teacher its student, or the target of
// reinforcement learning the network that is trained.
//
//   ls::SoftUpdateCallback({.source = "student", .target = "teacher", .tau = 0.01})
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/callback.h"

namespace lockstep {

struct SoftUpdateCallbackOptions {
  std::string source = {};     // the name of the network that is followed
  std::string target = {};     // the name of the network that follows; no optimizer may train it
  double tau = 0.01;           // target = tau x source + (1 - tau) x target; 1: a copy
  std::int64_t every = 1;      // after every n-th update of the model
  bool copy_at_start = false;  // the target begins as a copy of the source, but not after a resume
};

// Buffers follow, too, because a network that is not trained is in evaluation mode; those that are
// no floating-point numbers are copied. Every worker changes its own copy of the target, in the
// same way, so no message is sent.
class SoftUpdateCallback : public Callback {
 public:
  // Throws ConfigError for values that make no sense.
  explicit SoftUpdateCallback(SoftUpdateCallbackOptions options);

  CallbackTraits traits() const override {
    return {.uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  // Throws ConfigError if there is no such network, if they differ in a weight, or if an optimizer
  // trains the target.
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_step(State& state) override;

 private:
  void move(const State& state, double weight) const;

  SoftUpdateCallbackOptions options_;
};

}  // namespace lockstep
