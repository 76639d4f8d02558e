// Saves the run: last and best after every epoch, and last inside epochs where asked. train() adds
// one by itself where there is a logdir.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "lockstep/checkpoint/store.h"
#include "lockstep/train/callback.h"

namespace lockstep {

enum class CheckpointMode {
  kFull,   // everything a run needs to go on
  kModel,  // the weights alone: small, and enough to evaluate and predict
};

struct CheckpointCallbackOptions {
  std::optional<std::filesystem::path> folder = std::nullopt;  // default: logdir/checkpoints
  std::optional<MetricKey> metric = std::nullopt;  // what is best; default: valid_loader's
  // Whether a smaller metric is better. Default: as the metric says; minimize_valid_metric where it
  // is valid_loader's.
  std::optional<bool> minimize = std::nullopt;
  std::int64_t save_n_best = 1;         // epochs kept; 0: only the last one
  std::int64_t save_every_batches = 0;  // last.pth inside epochs, too; 0: never
  CheckpointMode mode = CheckpointMode::kFull;
};

// Where no metric says what is best, the newest epoch is. An interrupted run (Ctrl-C) leaves
// last.pth of the moment it was interrupted in, in full mode.
class CheckpointCallback : public Callback {
 public:
  bool uses_gradients() const override { return false; }
  explicit CheckpointCallback(CheckpointCallbackOptions options = {});

  // The folder it was told, or the default one.
  const std::optional<std::filesystem::path>& folder() const { return options_.folder; }

  // After everybody else: their memory of the batch or epoch goes into the file.
  Order order() const override { return Order::kExternalExtra; }
  bool needs_training() const override { return true; }
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>();
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
  // Rank 0 writes; the others take part in what is collective.
  void save_last(State& state);
  void check_optimizer_once(const State& state);
  StateDict content(const State& state) const;
  void publish(State& state) const;
  void publish_last(State& state) const;

  CheckpointCallbackOptions options_;
  std::optional<MetricKey> metric_;  // of the run at work
  std::optional<checkpoint::Store> store_;
  std::optional<StateDict> loaded_;  // waits for the store
  std::int64_t unsaved_batches_ = 0;
  bool optimizer_checked_ = false;  // its state can be saved, also after its first step
};

}  // namespace lockstep
