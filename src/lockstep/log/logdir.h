// The folder a run writes to.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "lockstep/log/folder_lock.h"

namespace lockstep {

// The names of a run's outputs in its folder. Every new kind of output must be added here.
inline constexpr std::array<std::string_view, 11> kRunOutputs = {
    "logs",          "tensorboard",   "checkpoints",     "configs",
    "images",        "artifacts",     "summary.json",    "profile.json",
    "operators.txt", "lr_finder.csv", "recoveries.jsonl"};

struct LogDirectoryOptions {
  bool resume = false;  // continue with the outputs of an earlier run
};

struct LogDirectory {
  std::filesystem::path path = {};
  // Where an earlier run's outputs were moved to, if there were any.
  std::optional<std::filesystem::path> moved_to = {};
  // No other run can use the folder while the lock exists.
  std::unique_ptr<FolderLock> lock = {};
};

// Creates the folder and locks it. If another run has locked it, throws Error before anything is
// changed. Incomplete files of a killed run are removed. A new run moves the outputs of an earlier
// run, and nothing else, to <path>/previous/<n>, where n counts up. So two runs never mix in one
// file, and nothing is deleted. A resumed run removes only summary.json: it is written again at the
// end, and a run that fails must not have the summary of an earlier one. Other files in the folder
// are not touched. Throws Error if the folder is not writable, or if an output cannot be moved;
// then none is moved.
LogDirectory prepare_logdir(const std::filesystem::path& path,
                            const LogDirectoryOptions& options = {});

}  // namespace lockstep
