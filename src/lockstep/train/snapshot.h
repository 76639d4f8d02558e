// A run as a checkpoint holds it. Keys follow Catalyst's: Python finds the weights under
// "model_state_dict", by the names that Python uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/named.h"
#include "lockstep/log/epoch_journal.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/phase.h"
#include "lockstep/train/state.h"

namespace lockstep {

// Keys of the parts that a new run can take from a checkpoint (train/restore.h).
inline constexpr const char* kOptimizerPart = "optimizer_state_dict";
inline constexpr const char* kSchedulerPart = "scheduler_state_dict";
inline constexpr const char* kCriterionPart = "criterion_state_dict";

// Where a run stopped, beyond what State contains.
struct Position {
  std::int64_t finished_epochs = 0;
  std::string loader;  // the current one; empty: between two epochs
  std::int64_t loader_batches_done = 0;
};

// The values of a run's optimizers: the value itself if there is one, else {optimizer: value}.
template <typename T>
StateValue by_optimizer(const Named<T>& values) {
  if (values.size() == 1) return StateValue(values.begin()->second);
  StateDict all;
  for (const auto& [name, value] : values) all.set(name, StateValue(value));
  return StateValue(std::move(all));
}

// Options of a run on which the batches and updates of an epoch depend. They can change only
// between epochs.
struct EpochRules {
  std::vector<Phase> phases = {};
  std::optional<std::int64_t> steps_per_epoch = {};  // as the options say
};

// What a snapshot has besides `state`.
struct SnapshotParts {
  Position position;
  EpochRules rules = {};
  StateDict averages = {};                      // of batch metrics, inside an epoch
  std::optional<std::string> stop_reason = {};  // inside an epoch: a request to end after it
  // Inside an epoch: what was logged in it. Null if the run has no loggers.
  const EpochJournal::Entries* records = nullptr;
};
// The tensors of networks, criterions and optimizers are those of the run: copy the result
// (state/copy.h) before the run goes on.
StateDict make_snapshot(const State& state, const SnapshotParts& parts,
                        const std::vector<CallbackPtr>& callbacks);

// Restores `state` and its parts from a snapshot. Throws CheckpointError, naming what does not fit,
// if the snapshot is of other networks, optimizers or data, or was made inside an epoch with other
// rules.
struct Restored {
  Position position;
  StateDict averages;
  // What was logged in the current epoch. Nothing if the snapshot does not have it: it is of an
  // older version, or this is not rank 0.
  std::optional<EpochJournal::Entries> records = {};
};
Restored restore_snapshot(const StateDict& snapshot, State& state,
                          const std::vector<CallbackPtr>& callbacks, const EpochRules& rules);

// For a new run: restores the states of optimizers, schedulers and criterions that `parts` has. The
// optimizers keep their learning rates and momentum, unless the schedulers are restored, too.
// Throws CheckpointError, naming what does not fit.
void restore_parts(const StateDict& parts, State& state);

// For a run that goes back to a snapshot with the callbacks of a failed attempt: a callback that
// remembered nothing at the snapshot, and does now, forgets it: load_state() gets an empty state.
void forget_unsaved(const StateDict& snapshot, const std::vector<CallbackPtr>& callbacks);
// Adds the states of callbacks that the snapshot, which is another run's, does not have.
void add_unsaved(StateDict& snapshot, const std::vector<CallbackPtr>& callbacks);

// The part of a snapshot, read by rank 0, that the other ranks need. Weights and the optimizer's
// tensors are not in it: Replicas::send() sends them, without a second copy.
StateDict without_tensors(const StateDict& snapshot, const Named<optim::Optimizer*>& optimizers);

// Whether the model's weights in the snapshot are averages, and the trained weights are beside
// them.
bool has_averaged_weights(const StateDict& snapshot);

// Whether a checkpoint has all that a run needs to continue, and not only weights.
bool is_resumable(const StateDict& checkpoint);

// The seed of the run that made the snapshot.
std::uint64_t snapshot_seed(const StateDict& snapshot);

}  // namespace lockstep
