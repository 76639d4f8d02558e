// Saves the run: last and best after every epoch, and last inside epochs if requested. train() adds
// this callback itself if there is a logdir.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lockstep/checkpoint/store.h"
#include "lockstep/train/callback.h"

namespace lockstep {

enum class CheckpointMode {
  kFull,   // everything a run needs to continue
  kModel,  // only the weights: small, and enough to evaluate and predict
};

struct CheckpointCallbackOptions {
  std::optional<std::filesystem::path> folder = std::nullopt;  // default: logdir/checkpoints
  std::optional<MetricKey> metric = std::nullopt;  // decides the best; default: valid_loader's
  // Whether a smaller metric is better. Default: minimize_valid_metric if the metric is
  // valid_loader's, else as the metric says.
  std::optional<bool> minimize = std::nullopt;
  std::int64_t save_n_best = 1;         // epochs kept; 0: only the last one
  std::int64_t save_every_batches = 0;  // last.pth inside epochs, too; 0: never
  CheckpointMode mode = CheckpointMode::kFull;
};

// If no metric is given, the newest epoch is the best. In full mode, an interrupted run (Ctrl-C)
// leaves a last.pth of the moment of the interrupt.
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
  void check(const State& state) const override;
  void on_run_start(State& state) override;
  void on_step(State& state) override;
  void on_epoch_end(State& state) override;
  void on_exception(State& state) override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;

 private:
  bool minimizes(const State& state) const;
  // Rank 0 writes; the other ranks take part in the collective calls.
  void save_last(State& state);
  void check_optimizer_once(const State& state);
  StateDict content(const State& state) const;
  void publish(State& state) const;
  void publish_last(State& state) const;

  CheckpointCallbackOptions options_;
  std::optional<MetricKey> metric_;  // of the current run
  std::optional<checkpoint::Store> store_;
  std::optional<StateDict> loaded_;  // is kept until the store is made
  std::int64_t unsaved_batches_ = 0;
  bool optimizer_checked_ = false;  // its state can be saved; checked again after its first step
};

}  // namespace lockstep
