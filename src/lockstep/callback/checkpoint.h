// Saves the run: last and best after every epoch, or after some epochs or steps. train() adds this
// callback itself if there is a logdir; CheckpointCallback({.mode = CheckpointMode::kNone})
// prevents that.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/train/callback.h"
#include "lockstep/train/checkpoint_series.h"

namespace lockstep {

using CheckpointCallbackOptions = CheckpointOptions;  // train/checkpoint_series.h

// If no metric is given, the newest epoch is the best. In full mode, an interrupted run (Ctrl-C)
// leaves a last.pth of the moment of the interrupt. Files are written beside training; all of them
// are there when train() returns.
//
// The callback holds the options and says when to save. The run's Checkpointer does the rest.
class CheckpointCallback : public Callback {
 public:
  explicit CheckpointCallback(CheckpointCallbackOptions options = {});

  // The folder from the options; nothing: the default one.
  const std::optional<std::filesystem::path>& folder() const { return options_.folder; }

  // After all other callbacks, because their state after the batch or epoch goes into the file.
  CallbackTraits traits() const override {
    return {.order = Order::kExternalExtra,
            .uses_gradients = false,
            .needs_training = true,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  std::string agreed_options() const override;
  void check(const State& state) const override { check_checkpoints(options_, state); }
  void on_run_start(State& state) override;
  void on_step(State&) override { series_.lock()->after_step(); }
  void on_epoch_end(State&) override { series_.lock()->after_epoch(); }
  void on_exception(State&) override;
  void on_run_end(State&) override { series_.reset(); }
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  CheckpointCallbackOptions options_;
  std::optional<StateDict> remembered_;  // by the run that is resumed
  // Of the current attempt of the run, which owns it. An attempt that failed takes it away.
  std::weak_ptr<CheckpointSeries> series_;
};

}  // namespace lockstep
