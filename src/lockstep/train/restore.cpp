#include "lockstep/train/restore.h"

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/train/snapshot.h"

namespace lockstep {
namespace {

struct Part {
  const char* name;  // of the option
  const char* key;   // in the file
  std::filesystem::path path;
};

// The parts that the options name.
std::vector<Part> parts_of(const RestoreOptions& options) {
  std::vector<Part> parts = {{"optimizer", kOptimizerPart, options.optimizer},
                             {"scheduler", kSchedulerPart, options.scheduler},
                             {"criterion", kCriterionPart, options.criterion}};
  std::erase_if(parts, [](const Part& part) { return part.path.empty(); });
  return parts;
}

}  // namespace

std::string RestoreOptions::describe() const {
  std::vector<std::string> names;
  for (const Part& part : parts_of(*this)) names.push_back(part.name);
  return names.empty() ? "none" : join(names, ", ");
}

StateDict read_parts(const RestoreOptions& options) {
  StateDict parts;
  for (const auto& [name, key, path] : parts_of(options)) {
    StateDict file = checkpoint::read(path).state;
    if (!file.contains(key) || file.at(key).get_if<StateDict>() == nullptr) {
      throw CheckpointError("{}: {} has no {}; expected a full checkpoint; it has: {}", name,
                            path.string(), key, join(file.keys(), ", "));
    }
    parts.set(key, file.get<StateDict>(key));
    // It says how many optimizers there are.
    if (key == kOptimizerPart && file.contains("run")) parts.set("run", file.get<StateDict>("run"));
  }
  return parts;
}

}  // namespace lockstep
