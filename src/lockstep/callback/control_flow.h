// Restricts a callback to some epochs or loaders.
//
//   ls::ControlFlowCallback(ls::AUCCallback({.num_classes = 10}), {.loaders = {"valid"}})
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

// Conditions. At least one must be given; if there are more, all must allow the call. Epochs count
// from 1.
struct ControlFlowCallbackOptions {
  std::vector<std::string> loaders = {};         // only these
  std::vector<std::string> ignore_loaders = {};  // not these
  std::optional<std::int64_t> every = {};        // every n-th epoch: for 5 these are 5, 10, 15, …
  std::vector<std::int64_t> epochs = {};         // only these
  std::vector<std::int64_t> ignore_epochs = {};  // not these
  std::map<std::string, std::vector<std::int64_t>> loader_epochs = {};  // only these loaders, each
                                                                        // in these epochs
  std::map<std::string, std::vector<std::int64_t>> ignore_loader_epochs = {};  // not in these
  // Must return the same on every worker.
  std::function<bool(std::int64_t epoch, const std::string& loader)> filter = {};
};

// Hooks inside a loader's pass are called if all conditions allow it. on_epoch_start,
// on_epoch_end and on_checkpoint are called if every, epochs and ignore_epochs allow that epoch: a
// CheckpointCallback with {.every = 3} saves every third one. The other conditions, which depend on
// the loader, apply to passes, not to the start and end of an epoch. on_run_start and on_run_end
// are always called.
class ControlFlowCallback : public Callback {
 public:
  // Throws ConfigError if no condition is given, or if one makes no sense.
  ControlFlowCallback(Callbacks::Item callback, ControlFlowCallbackOptions options);

  std::string name() const override { return held_->name(); }
  const Callback& inner() const override { return held_->inner(); }
  CallbackTraits traits() const override { return held_->traits(); }
  std::string agreed_options() const override;
  std::optional<Better> better(std::string_view metric) const override {
    return held_->better(metric);
  }
  Metrics running_metrics() const override;
  void check(const State& state) const override;
  void dry_run(const std::string& loader, Batch& batch) override;

  void on_run_start(State& state) override { held_->on_run_start(state); }
  void on_epoch_start(State& state) override { pass_epoch(&Callback::on_epoch_start, state); }
  void on_loader_start(State& state) override;
  void on_batch_start(State& state) override { pass(&Callback::on_batch_start, state); }
  void on_outputs(State& state) override { pass(&Callback::on_outputs, state); }
  void on_forward(State& state) override { pass(&Callback::on_forward, state); }
  void on_backward(State& state) override { pass(&Callback::on_backward, state); }
  void on_batch_end(State& state) override { pass(&Callback::on_batch_end, state); }
  void on_step(State& state) override { pass(&Callback::on_step, state); }
  void on_loader_end(State& state) override { pass(&Callback::on_loader_end, state); }
  void on_epoch_end(State& state) override { pass_epoch(&Callback::on_epoch_end, state); }
  void on_checkpoint(State& state) override { pass_epoch(&Callback::on_checkpoint, state); }
  void on_run_end(State& state) override { held_->on_run_end(state); }
  void on_exception(State& state) override { held_->on_exception(state); }
  bool wants_gradients(const State& state) const override {
    return is_allowed_ && held_->wants_gradients(state);
  }
  void on_gradients(State& state, const SummedGradients& gradients) override {
    held_->on_gradients(state, gradients);
  }
  void gather(comm::Communicator& communicator) override;

  StateDict state() const override { return held_->state(); }
  void load_state(const StateDict& state) override { held_->load_state(state); }

 private:
  bool allows_epoch(std::int64_t epoch) const;
  bool allows_loader(const std::string& loader) const;
  bool allows(std::int64_t epoch, const std::string& loader) const;
  void pass_epoch(Hook hook, State& state) {
    if (allows_epoch(state.progress.epoch)) ((*held_).*hook)(state);
  }
  void pass(Hook hook, State& state) {
    if (is_allowed_) ((*held_).*hook)(state);
  }

  CallbackPtr held_;
  ControlFlowCallbackOptions options_;
  bool is_allowed_ = false;  // in the current pass
};

// The callback in every n-th epoch only: ls::every(3, ls::CheckpointCallback()).
ControlFlowCallback every(std::int64_t n, Callbacks::Item callback);
// The callback in those passes only that the filter allows, as in ControlFlowCallbackOptions.
ControlFlowCallback only_if(
    std::function<bool(std::int64_t epoch, const std::string& loader)> filter,
    Callbacks::Item callback);

}  // namespace lockstep
