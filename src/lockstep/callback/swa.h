// Stochastic weight averaging (Izmailov et al. 2018): the mean of the weights of the last epochs.
//
//   ls::SwaCallback({.start_epoch = 16, .lr = 0.05})
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/optim/scheduler.h"
#include "lockstep/train/averaged_weights.h"
#include "lockstep/train/callback.h"

namespace lockstep {

struct SwaCallbackOptions {
  // The first epoch whose weights are averaged. Default: the first one after three quarters of the
  // epochs. Once it has begun, a resumed run keeps it, also if it has more epochs.
  std::optional<std::int64_t> start_epoch = {};
  std::int64_t start_step = 1;  // the first update of the run after which it averages
  // Averages after every n-th update of the model. Default: after the training of every epoch.
  std::optional<std::int64_t> every = {};
  // The learning rate from start_epoch on, for all optimizers. Default: as without averaging.
  std::optional<double> lr = {};
  // The number of epochs in which the learning rate goes from the one before start_epoch to lr. 0:
  // it is lr at once.
  std::int64_t anneal_epochs = 0;
  optim::Anneal anneal = optim::Anneal::kCos;  // how it goes there
  std::vector<std::string> networks = {};      // to average; none: all that an optimizer trains
  // Computes the statistics of batch norm for the average from the train data, after the training
  // of every epoch. It costs a forward pass over them, if the model has buffers.
  bool remake_batch_norm = true;
};

// From the first average on, valid loaders are evaluated with the average, checkpoints have it as
// the model's weights, and the run ends with it. Training goes on with the trained weights
// (docs/guide/averaging.md). It costs one copy of the weights on rank 0.
class SwaCallback : public Callback {
 public:
  // Throws ConfigError for values that make no sense.
  explicit SwaCallback(SwaCallbackOptions options = {});

  // After the scheduler, because the learning rate is that of SwaCallback.
  CallbackTraits traits() const override {
    return {.uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_epoch_start(State& state) override;
  void on_step(State& state) override;
  void on_loader_end(State& state) override;
  void on_run_end(State& state) override;

  // How many weights the mean is made of, the learning rates before start_epoch, and start_epoch.
  // The mean itself is in the checkpoint, too.
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  AveragedWeights::Request request() const;
  std::int64_t first_epoch(const State& state) const;
  bool has_begun(const State& state) const;
  void add(State& state);
  void set_lr(State& state) const;

  SwaCallbackOptions options_;
  std::int64_t count_ = 0;                   // weights in the mean
  StateDict first_lrs_;                      // of the optimizers, when start_epoch began
  std::optional<std::int64_t> first_epoch_;  // start_epoch, once it has begun
  bool has_loaded_ = false;                  // load_state() was called for the next run
};

}  // namespace lockstep
