// The norms of gradients, layer by layer:
//
//   ls::GradientNormsCallback({.by = ls::NormsBy::kModule})
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

enum class NormsBy { kParameter, kModule };

struct GradientNormsCallbackOptions {
  NormsBy by = NormsBy::kParameter;  // one norm per parameter, or per module that has parameters
  // Names of parameters, or patterns with *, ? and [abc]. None: all parameters.
  std::vector<std::string> names = {};
  std::int64_t every = 1;  // measures every n-th update of the model
};

// Adds a metric "gradient_norm/<name>" to each train loader: the mean, over the measured updates of
// the pass, of the L2 norm of the mean gradient over all shards and workers, before it is clipped
// by norm. The norm of a module is that of all its own parameters together. An update with
// gradients that are not finite, which the loss scaler skips, is not measured. It costs one pass
// over the gradients on rank 0.
class GradientNormsCallback : public Callback {
 public:
  // Throws ConfigError if `every` is not positive.
  explicit GradientNormsCallback(GradientNormsCallbackOptions options = {});

  CallbackTraits traits() const override {
    return {.uses_gradients = false, .needs_training = true, .changes_batch = false};
  }
  std::string agreed_options() const override;
  // Throws ConfigError if a pattern matches no parameter.
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_loader_start(State& state) override;
  bool wants_gradients(const State& state) const override;
  void on_gradients(State& state, const SummedGradients& gradients) override;
  void on_step(State& state) override;
  void on_loader_end(State& state) override;

  // The sums of the current pass, and the updates since the last one that was measured.
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  struct Mean {
    double sum = 0;
    std::int64_t count = 0;
  };

  GradientNormsCallbackOptions options_;
  std::int64_t unmeasured_ = 0;        // updates since the last one that was measured
  std::map<std::string, Mean> norms_;  // on rank 0
  bool has_loaded_ = false;            // load_state() was called for the next run
};

}  // namespace lockstep
