// Histograms of weights and gradients, for TensorBoard and other loggers that show them:
//
//   ls::HistogramsCallback({.names = {"encoder.*"}, .every_epochs = 5})
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

struct HistogramsCallbackOptions {
  // Names of parameters, or patterns with *, ? and [abc]. None: all parameters.
  std::vector<std::string> names = {};
  bool weights = true;
  bool gradients = true;
  std::int64_t every_epochs = 1;                 // after the last batch of every n-th epoch
  std::optional<std::int64_t> every_steps = {};  // instead: after every n-th update of the model
};

// Logs one histogram per parameter, "weights/<name>" and "gradients/<name>", with the buckets of
// torch.utils.tensorboard. Gradients are the means over all shards and workers, before they are
// clipped by norm. An epoch that a callback ends early has none of its own, unless every_steps is
// set. It costs one pass over the parameters and gradients on rank 0.
class HistogramsCallback : public Callback {
 public:
  // Throws ConfigError for values that make no sense.
  explicit HistogramsCallback(HistogramsCallbackOptions options = {});

  CallbackTraits traits() const override {
    return {.uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  // Throws ConfigError if a pattern matches no parameter.
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_loader_start(State& state) override;
  bool wants_gradients(const State& state) const override;
  void on_gradients(State& state, const SummedGradients& gradients) override;
  void on_step(State& state) override;

  // The updates since the last histograms.
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  bool is_due(const State& state, std::int64_t updates) const;
  bool matches(const std::string& name) const;
  void add(const std::string& tag, const torch::Tensor& values);

  HistogramsCallbackOptions options_;
  std::int64_t unlogged_ = 0;  // updates since the last histograms
  bool has_loaded_ = false;    // load_state() was called for the next run
  std::vector<std::pair<std::string, Histogram>> found_;  // on rank 0, of the current update
};

}  // namespace lockstep
