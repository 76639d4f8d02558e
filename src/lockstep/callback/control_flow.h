// Lets a callback take part in some epochs or loaders only.
//
//   ls::ControlFlowCallback(ls::AUCCallback({.num_classes = 10}), {.loaders = {"valid"}})
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

// At least one; where there are more, all must allow it. Epochs count from 1.
struct ControlFlowCallbackOptions {
  std::vector<std::string> loaders = {};         // these only
  std::vector<std::string> ignore_loaders = {};  // not these
  std::optional<std::int64_t> every = {};        // each so many epochs: 5, 10, 15, …
  std::vector<std::int64_t> epochs = {};         // these only
  std::vector<std::int64_t> ignore_epochs = {};  // not these
  // The same on every worker.
  std::function<bool(std::int64_t epoch, const std::string& loader)> filter = {};
};

// What happens inside of a loader's pass reaches the callback where all conditions allow it. The
// start and the end of an epoch reach it where every, epochs and ignore_epochs allow that epoch: a
// CheckpointCallback with {.every = 3} saves each third one. The others (loaders, filter) are about
// passes and do not keep an epoch's start or end away. The run's start and end always reach it.
class ControlFlowCallback : public Callback {
 public:
  // Throws ConfigError where the options say nothing, or have no meaning.
  ControlFlowCallback(Callbacks::Item callback, ControlFlowCallbackOptions options);

  std::string name() const override { return held_->name(); }
  const Callback& inner() const override { return held_->inner(); }
  Order order() const override { return held_->order(); }
  Ranks ranks() const override { return held_->ranks(); }
  std::optional<std::vector<std::string>> metric_names() const override {
    return held_->metric_names();
  }
  std::optional<Better> better(std::string_view metric) const override {
    return held_->better(metric);
  }
  Metrics running_metrics() const override;
  bool uses_gradients() const override { return held_->uses_gradients(); }
  bool needs_training() const override { return held_->needs_training(); }
  void check(const State& state) const override;

  void on_run_start(State& state) override { held_->on_run_start(state); }
  void on_epoch_start(State& state) override { pass_epoch(&Callback::on_epoch_start, state); }
  void on_loader_start(State& state) override;
  void on_batch_start(State& state) override { pass(&Callback::on_batch_start, state); }
  void on_forward(State& state) override { pass(&Callback::on_forward, state); }
  void on_backward(State& state) override { pass(&Callback::on_backward, state); }
  void on_batch_end(State& state) override { pass(&Callback::on_batch_end, state); }
  void on_step(State& state) override { pass(&Callback::on_step, state); }
  void on_loader_end(State& state) override { pass(&Callback::on_loader_end, state); }
  void on_epoch_end(State& state) override { pass_epoch(&Callback::on_epoch_end, state); }
  void on_run_end(State& state) override { held_->on_run_end(state); }
  void on_exception(State& state) override { held_->on_exception(state); }
  void gather(comm::Communicator& communicator) override;

  StateDict state() const override { return held_->state(); }
  void load_state(const StateDict& state) override { held_->load_state(state); }

 private:
  bool allows_epoch(std::int64_t epoch) const;
  bool allows(std::int64_t epoch, const std::string& loader) const;
  void pass_epoch(Hook hook, State& state) {
    if (allows_epoch(state.progress.epoch)) ((*held_).*hook)(state);
  }
  void pass(Hook hook, State& state) {
    if (is_allowed_) ((*held_).*hook)(state);
  }

  CallbackPtr held_;
  ControlFlowCallbackOptions options_;
  bool is_allowed_ = false;  // in the pass at work
};

}  // namespace lockstep
