// A run as a checkpoint holds it. Keys follow Catalyst's: Python finds the weights, by the names it
// uses itself, under "model_state_dict".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/state/state_dict.h"
#include "lockstep/train/callback.h"
#include "lockstep/train/state.h"

namespace lockstep {

// Where a run stopped, beyond what State knows.
struct Position {
  std::int64_t finished_epochs = 0;
  std::string loader;  // the one under way; empty: between two epochs
  std::int64_t loader_batches_done = 0;
};

StateDict make_snapshot(const State& state, const Position& position,
                        const std::vector<CallbackPtr>& callbacks, const StateDict& averages);

// What a snapshot puts back into `state` and its parts. Throws CheckpointError, with the thing that
// does not fit, where the snapshot is of another model, optimizer or data.
struct Restored {
  Position position;
  StateDict averages;
};
Restored restore_snapshot(const StateDict& snapshot, State& state,
                          const std::vector<CallbackPtr>& callbacks);

// What the other ranks need of a snapshot that rank 0 has read. Weights and the optimizer's tensors
// are not in it: Replica::send() brings them, without a second copy.
StateDict without_tensors(const StateDict& snapshot, const optim::Optimizer& optimizer);

// The seed a snapshot's run used.
std::uint64_t snapshot_seed(const StateDict& snapshot);

}  // namespace lockstep
