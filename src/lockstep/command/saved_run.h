// A run that is over: the checkpoint and the config that `evaluate`, `predict` and `export` use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/recipe/recipe.h"

namespace CLI {
class App;
}

namespace lockstep::command {

struct SavedRunOptions {
  std::string run;                             // the folder of a run, or a checkpoint
  std::vector<std::string> overrides = {};     // path=value
  std::optional<std::string> checkpoint = {};  // best, last, epoch.N; default: best, else last
  std::optional<std::string> loader = {};      // default: valid_loader, valid, or the only one
  std::vector<std::string> configs = {};       // merged over the config of the run
  std::vector<std::string> plugins = {};
  std::optional<std::int64_t> workers = {};   // default: one process
  std::optional<std::string> precision = {};  // default: that of the run
};

struct SavedRun {
  std::filesystem::path checkpoint;
  recipe::Evaluation evaluation;  // the model has the weights of the checkpoint
  bool is_primary = true;  // false on other ranks of a launcher: they print and write nothing
};

// Adds the options to a command. `options` must outlive the parser.
void add_saved_run_options(CLI::App& command, SavedRunOptions& options);
// The same without those that say how the model is computed: workers and precision.
void add_run_options(CLI::App& command, SavedRunOptions& options);

// The checkpoint that the options mean. Throws ConfigError if there is none.
std::filesystem::path find_checkpoint(const SavedRunOptions& options);

// Throws ConfigError if there is no such run, checkpoint, config or loader, and CheckpointError if
// the checkpoint is damaged or belongs to another model.
SavedRun open_saved_run(const SavedRunOptions& options);

}  // namespace lockstep::command
