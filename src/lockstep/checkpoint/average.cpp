#include "lockstep/checkpoint/average.h"

#include <map>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/file.h"

namespace lockstep::checkpoint {
namespace {

StateDict weights_of(const std::filesystem::path& path) {
  const StateDict state = load(path);
  if (!state.contains("model_state_dict")) {
    throw CheckpointError("{}: has no model_state_dict", path.string());
  }
  return state.get<StateDict>("model_state_dict");
}

void check_same_model(const StateDict& first, const StateDict& other,
                      const std::filesystem::path& path) {
  for (const auto& [name, value] : first) {
    if (!other.contains(name)) {
      throw CheckpointError("{}: has no weight {}, which the first one has", path.string(), name);
    }
    const auto expected = first.get<torch::Tensor>(name);
    const auto found = other.get<torch::Tensor>(name);
    if (expected.sizes() != found.sizes() || expected.scalar_type() != found.scalar_type()) {
      throw CheckpointError("{}: weight {} is of another shape or type than the first one's",
                            path.string(), name);
    }
  }
  if (other.size() != first.size()) {
    throw CheckpointError("{}: expected {} weights, as the first one has, got {}", path.string(),
                          first.size(), other.size());
  }
}

}  // namespace

StateDict average_weights(std::span<const std::filesystem::path> paths) {
  if (paths.empty()) throw ConfigError("expected checkpoints to average, got none");
  const StateDict first = weights_of(paths.front());
  StateDict last = first;
  std::map<std::string, torch::Tensor> sums;
  for (const auto& path : paths) {
    if (path != paths.front()) {
      last = weights_of(path);
      check_same_model(first, last, path);
    }
    for (const auto& [name, value] : last) {
      const auto tensor = last.get<torch::Tensor>(name);
      if (!tensor.is_floating_point()) continue;
      auto& sum = sums[name];
      sum = sum.defined() ? sum + tensor : tensor.to(torch::kFloat64);
    }
  }
  StateDict mean;
  for (const auto& [name, value] : last) {
    const auto tensor = last.get<torch::Tensor>(name);
    const auto sum = sums.find(name);
    mean.set(name,
             sum == sums.end()
                 ? tensor
                 : (sum->second / static_cast<double>(paths.size())).to(tensor.scalar_type()));
  }
  return mean;
}

}  // namespace lockstep::checkpoint
