// The folder a run writes to.
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "lockstep/log/folder_lock.h"

namespace lockstep {

// What a run writes into its folder. Whoever adds an output adds its name here.
inline constexpr std::array<std::string_view, 7> kRunOutputs = {
    "logs",         "tensorboard",  "checkpoints",  "configs",
    "summary.json", "profile.json", "lr_finder.csv"};

struct LogDirectoryOptions {
  bool resume = false;  // goes on with what an earlier run left there
};

struct LogDirectory {
  std::filesystem::path path = {};
  // Where an earlier run's outputs were moved to, if there were any.
  std::optional<std::filesystem::path> moved_to = {};
  // As long as it lives, no other run can use the folder.
  std::unique_ptr<FolderLock> lock = {};
};

// Creates the folder and locks it. Throws Error where another run has it, before anything is
// touched. Files that a killed run was writing are removed. A fresh run that finds an earlier run's
// outputs moves exactly those to <path>/previous/<n>, n counting up: two runs never mix in one file
// and nothing is deleted. A resumed run removes summary.json alone: it is written anew at the end,
// and a run that fails shall not have the summary of an earlier one. Other files in the folder are
// left alone. Throws Error where the folder cannot be written.
LogDirectory prepare_logdir(const std::filesystem::path& path,
                            const LogDirectoryOptions& options = {});

}  // namespace lockstep
