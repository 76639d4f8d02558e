// An exponential moving average of the weights:
//
//   ls::EmaCallback({.decay = 0.999})
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/train/averaged_weights.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct EmaCallbackOptions {
  double decay = 0.9999;         // average = decay x average + (1 - decay) x weights
  std::int64_t every = 1;        // averages after every n-th update of the model
  std::int64_t start_epoch = 1;  // the first epoch in which it averages
  std::int64_t start_step = 1;   // the first update of the run after which it averages
  // Begins with a small decay, as timm does: update n of the average has at most the decay
  // 1 - (1 + n / warmup_gamma)^-warmup_power.
  bool warmup = false;
  double warmup_gamma = 1.0;
  double warmup_power = 2.0 / 3.0;  // 2/3 reaches 0.999 after 31,600 updates; 3/4 after 10,000
  std::vector<std::string> networks = {};  // to average; none: all that an optimizer trains
  // Buffers are averaged, too, as in timm. With true, the statistics of batch norm are computed
  // from the train data instead, after every epoch, which costs a forward pass over them.
  bool remake_batch_norm = false;
};

// The first average is a copy of the weights. From then on valid loaders are evaluated with the
// average, checkpoints have it as the model's weights, and the run ends with it. Training goes on
// with the trained weights (docs/guide/averaging.md). It costs one copy of the weights on rank 0,
// and one pass over them per update.
class EmaCallback : public Callback {
 public:
  // Throws ConfigError for values that make no sense.
  explicit EmaCallback(EmaCallbackOptions options = {});

  // The decay of update n of the average; n counts from 1. The copy that begins it is update 0.
  double decay_of(std::int64_t n) const;

  CallbackTraits traits() const override {
    return {.uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_step(State& state) override;
  void on_run_end(State& state) override;

  // How many times the average was updated. The average itself is in the checkpoint, too.
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  AveragedWeights::Request request() const;

  EmaCallbackOptions options_;
  std::int64_t updates_ = 0;  // of the average, the first copy included
};

}  // namespace lockstep
