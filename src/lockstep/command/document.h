// Changes that the command line makes to a config's document. `run`, `evaluate` and `predict` share
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/node.h"
#include "lockstep/process/environment.h"

namespace lockstep::command {

config::Node flag(bool value);
config::Node number(std::int64_t value);

// Merges the configs over the document, in their order.
void merge_configs(const std::vector<std::string>& files, config::Node& document);

// Applies arguments "path=value" in their order.
void apply_overrides(const std::vector<std::string>& overrides, config::Node& document);

// Flags that say how many workers there are.
struct WorkerFlags {
  std::optional<std::int64_t> workers = {};
  std::optional<std::int64_t> shards = {};
  bool distributed = false;
  std::optional<std::int64_t> max_restarts = {};
};
void apply_workers(const WorkerFlags& flags, config::Node& document);

// Sets `precision`, and removes `fp16` and `amp`, which say the same in another way.
void apply_precision(const std::string& precision, config::Node& document);

// Adds libraries to `plugins`.
void add_plugins(const std::vector<std::string>& paths, config::Node& document);

// If a launcher started several processes, they work together. Throws LocatedError if the document
// asks for another number of workers.
void take_place(const std::optional<process::LaunchedPlace>& place, config::Node& document);

}  // namespace lockstep::command
