// Freezes parameters by their names for some epochs, for example those of a pretrained encoder
// while a new head learns:
//
//   ls::FreezeCallback({.names = {"encoder.*"}, .epochs = 2})
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/train/callback.h"

namespace lockstep {

struct FreezeCallbackOptions {
  // Names of parameters, or patterns with *, ? and [abc]. Those of several networks begin with the
  // name of the network: "generator.*".
  std::vector<std::string> names = {};
  std::int64_t from_epoch = 1;              // the first epoch in which they are frozen
  std::optional<std::int64_t> epochs = {};  // for how many epochs; none: until the end of the run
  // Whether modules all of whose parameters are frozen are in evaluation mode in these epochs, with
  // everything inside of them: batch norm keeps its running mean and variance and normalises by
  // them, and dropout does nothing. Fine-tuning of pretrained networks with batch norm needs it.
  bool eval = false;
};

// A frozen parameter has no gradient, and the optimizer leaves it alone. Buffers, such as the
// running mean of batch norm, still follow the data, unless `eval` is set. Between epochs and after
// the run, parameters require gradients as before it. If several callbacks freeze a parameter, it
// is frozen in the epochs of all of them, whatever their order is.
class FreezeCallback : public Callback {
 public:
  // Throws ConfigError if there is no name, or if a number is not positive.
  explicit FreezeCallback(FreezeCallbackOptions options);

  CallbackTraits traits() const override {
    return {.order = Order::kInternal,
            .uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  // Throws ConfigError if a pattern matches no parameter, or if nothing would be left to train.
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_epoch_start(State& state) override;
  void on_loader_start(State& state) override;
  void on_epoch_end(State& state) override;
  void on_run_end(State& state) override;

 private:
  bool is_frozen_in(std::int64_t epoch) const;
  void thaw();

  FreezeCallbackOptions options_;
  std::vector<torch::Tensor> frozen_;  // those that this callback froze in this epoch
};

}  // namespace lockstep
