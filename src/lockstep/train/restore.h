// Parts of earlier runs with which a new run begins. `resume` continues a run as a whole, `weights`
// takes the weights; these are the others:
//
//   .weights = "logs/first/checkpoints/best.pth",
//   .restore = {.optimizer = "logs/first/checkpoints/last.pth"},
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/state/state_dict.h"

namespace lockstep {

// Each is the path of a full checkpoint, or of a file of torch.save with the same key. Empty: the
// part begins as it was made.
struct RestoreOptions {
  // optimizer_state_dict: the moments and the counts of steps. Hyper-parameters are the file's, as
  // in PyTorch, except the learning rate and the momentum, which are this run's. If the scheduler
  // is restored, too, these are the file's.
  std::filesystem::path optimizer = {};
  std::filesystem::path scheduler = {};  // scheduler_state_dict: its place in the schedule
  std::filesystem::path criterion = {};  // criterion_state_dict: weights of a loss

  explicit operator bool() const {
    return !optimizer.empty() || !scheduler.empty() || !criterion.empty();
  }

  // Which parts, as text, without the paths: ranks may have different paths to the same file.
  std::string describe() const;
};

// Reads the parts, by their keys in a checkpoint (train/snapshot.h). Throws CheckpointError, which
// names the option and the file, if a file cannot be read or lacks its part.
StateDict read_parts(const RestoreOptions& options);

}  // namespace lockstep
