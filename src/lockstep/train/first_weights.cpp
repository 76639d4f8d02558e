#include "lockstep/train/first_weights.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/file.h"

namespace lockstep {

FirstWeights first_weights(const Model& model, const TrainOptions& options) {
  FirstWeights first{.state = checkpoint::load_weights(*options.weights), .left_out = {}};
  const NamedTensors own = model.weights();
  std::vector<std::string> names;  // of the model, then those that only the file has
  for (const auto& [name, tensor] : own) names.push_back(name);
  for (const auto& name : first.state.keys()) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  for (const std::string& pattern : options.weights_skip) {
    bool is_used = false;
    for (const std::string& name : names) {
      if (!matches_pattern(pattern, name)) continue;
      is_used = true;
      if (std::ranges::find(first.left_out, name) != first.left_out.end()) continue;
      first.left_out.push_back(name);
      first.state.erase(name);
    }
    if (is_used) continue;
    throw ConfigError("weights_skip: '{}' matches no weight of the model or of {}; {}", pattern,
                      options.weights->string(), suggest(pattern, names));
  }
  for (const auto& [name, tensor] : own) {
    const bool is_left_out = std::ranges::find(first.left_out, name) != first.left_out.end();
    if (is_left_out) first.state.set(name, tensor.detach());
  }
  try {
    model.check_state(first.state);
  } catch (const CheckpointError& error) {
    throw CheckpointError(
        "{}: {}; to begin without a weight of the file, add its name or a pattern to weights_skip",
        options.weights->string(), error.what());
  }
  return first;
}

}  // namespace lockstep
