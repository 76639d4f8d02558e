// The checkpoint files that one CheckpointCallback asks for: last and best after every epoch, and
// last inside epochs if requested.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "lockstep/checkpoint/store.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/selection.h"
#include "lockstep/train/state.h"

namespace lockstep {

class Checkpointer;

enum class CheckpointMode {
  kFull,   // everything a run needs to continue
  kModel,  // only the weights: small, and enough to evaluate and predict
};

struct CheckpointOptions {
  std::optional<std::filesystem::path> folder = std::nullopt;  // default: logdir/checkpoints
  std::optional<MetricKey> metric = std::nullopt;  // decides the best; default: valid_loader's
  // Whether a smaller metric is better. Default: minimize_valid_metric if the metric is
  // valid_loader's, else as the metric says.
  std::optional<bool> minimize = std::nullopt;
  std::int64_t save_n_best = 1;         // epochs kept; 0: only the last one
  std::int64_t save_every_batches = 0;  // last.pth inside epochs, too; 0: never
  CheckpointMode mode = CheckpointMode::kFull;
};

// Throws ConfigError for values that make no sense, whatever the run is.
void check_checkpoints(const CheckpointOptions& options);
// Throws ConfigError if the options cannot work in this run.
void check_checkpoints(const CheckpointOptions& options, const RunState& run);

// Every rank has one. Rank 0 writes; the other ranks take part in the collective calls.
class CheckpointSeries {
 public:
  CheckpointSeries(const CheckpointOptions& options, Checkpointer& checkpointer, State& state);

  // Collective. Call them in on_step, on_epoch_end and on_exception.
  void after_step();
  void after_epoch();
  void after_exception();

  // The list of the best epochs, for a checkpoint.
  StateDict state() const;
  void load_state(const StateDict& state);

 private:
  void check_optimizers_once();
  void save_last();
  StateDict content() const;
  void publish() const;
  void publish_last() const;

  CheckpointOptions options_;
  Checkpointer& checkpointer_;
  State& state_;
  Selection selection_;
  std::optional<checkpoint::Store> store_;  // rank 0's
  std::int64_t unsaved_batches_ = 0;
  std::set<std::string> checked_;  // optimizers whose state can be saved, after their first step
};

}  // namespace lockstep
