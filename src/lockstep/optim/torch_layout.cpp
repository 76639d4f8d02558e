#include "lockstep/optim/torch_layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::optim {
namespace {

constexpr const char* kGroups = "param_groups";
constexpr const char* kNames = "param_names";
constexpr const char* kParams = "params";

// Beyond this, not every integer is a double.
constexpr double kMostSteps = 9007199254740992.0;

StateDict torch_options(const StateDict& options) {
  StateDict group;
  for (const auto& [name, value] : options) {
    if (name == "beta2") continue;
    if (name == "beta1") {
      group.set("betas", StateList{value, options.at("beta2")});
    } else {
      group.set(name, value);
    }
  }
  return group;
}

StateDict own_options(const StateDict& group) {
  StateDict options;
  for (const auto& [name, value] : group) {
    if (name == kParams || name == kNames) continue;
    if (name != "betas") {
      options.set(name, value);
      continue;
    }
    const auto betas = group.get<StateList>("betas");
    if (betas.size() != 2) {
      throw CheckpointError("betas: expected two numbers, found {}", betas.size());
    }
    options.set("beta1", betas[0]);
    options.set("beta2", betas[1]);
  }
  return options;
}

std::vector<StateDict> groups_in(const StateDict& state) {
  std::vector<StateDict> groups;
  for (const StateValue& item : state.get<StateList>(kGroups)) {
    const auto* const group = item.get_if<StateDict>();
    if (group == nullptr) {
      throw CheckpointError("{}: expected dictionaries, found {}", kGroups, item.kind());
    }
    groups.push_back(*group);
  }
  if (groups.empty()) throw CheckpointError("{}: expected at least one group", kGroups);
  return groups;
}

std::size_t size_of(const StateDict& group) {
  return group.get<StateList>(kParams).size();
}

// A wrapper of Python's such as DistributedDataParallel puts this before every name.
void remove_wrapper(std::vector<ParameterGroup>& groups) {
  constexpr std::string_view kWrapper = "module.";
  const bool is_wrapped = std::ranges::all_of(groups, [&](const ParameterGroup& group) {
    return std::ranges::all_of(group.names,
                               [&](const std::string& name) { return name.starts_with(kWrapper); });
  });
  if (!is_wrapped) return;
  for (ParameterGroup& group : groups) {
    for (std::string& name : group.names) name.erase(0, kWrapper.size());
  }
}

// The names in the file; nothing if a group has none.
std::optional<std::vector<ParameterGroup>> saved_names(const std::vector<StateDict>& groups) {
  std::vector<ParameterGroup> named;
  for (const StateDict& group : groups) {
    if (!group.contains(kNames)) return std::nullopt;
    named.emplace_back();
    for (const StateValue& item : group.get<StateList>(kNames)) {
      const auto* const name = item.get_if<std::string>();
      if (name == nullptr) throw CheckpointError("{}: expected text", kNames);
      named.back().names.push_back(*name);
    }
    if (named.back().names.size() != size_of(group)) {
      throw CheckpointError("{}: expected {} names, found {}", kNames, size_of(group),
                            named.back().names.size());
    }
  }
  remove_wrapper(named);
  return named;
}

// Cuts a list of all parameters into groups of the file's sizes.
std::vector<ParameterGroup> names_by_position(const std::vector<StateDict>& groups,
                                              const TorchNames& names) {
  const bool same_groups = std::ranges::equal(
      groups, names.groups,
      [](const StateDict& saved, const auto& ours) { return size_of(saved) == ours.names.size(); });
  if (same_groups) return names.groups;
  if (groups.size() == 1) {
    for (const auto* const list : {&names.all, &names.trainable}) {
      if (size_of(groups[0]) == list->size()) return {{.names = *list}};
    }
  }
  std::vector<std::string> saved, ours;
  for (const StateDict& group : groups) saved.push_back(std::to_string(size_of(group)));
  for (const auto& group : names.groups) ours.push_back(std::to_string(group.names.size()));
  throw CheckpointError(
      "its state has groups of {} parameters without names, this run has groups of {}; expected "
      "the same groups, or one group of all {} parameters or of the {} that are trained",
      join(saved, ", "), join(ours, ", "), names.all.size(), names.trainable.size());
}

std::string key_of(const StateValue& number) {
  if (const auto* const index = number.get_if<std::int64_t>()) return std::to_string(*index);
  if (const auto* const text = number.get_if<std::string>()) return *text;
  throw CheckpointError("{}: expected integers, found {}", kParams, number.kind());
}

}  // namespace

bool has_torch_layout(const StateDict& state) {
  return state.contains(kGroups);
}

StateDict to_torch_layout(const TorchState& state) {
  StateList groups;
  std::map<std::string_view, std::int64_t> numbers;
  for (const ParameterGroup& group : state.groups) {
    StateList params, names;
    for (const std::string& name : group.names) {
      params.emplace_back(numbers.size());
      names.emplace_back(name);
      numbers.emplace(name, numbers.size());
    }
    StateDict saved = torch_options(group.options);
    saved.set(kParams, std::move(params));
    saved.set(kNames, std::move(names));
    groups.emplace_back(std::move(saved));
  }
  std::map<std::int64_t, const StateDict*> by_number;
  for (const auto& [name, kinds] : state.parameters) by_number[numbers.at(name)] = &kinds;
  std::vector<StateDict::Entry> states;
  for (const auto& [number, kinds] : by_number) states.emplace_back(std::to_string(number), *kinds);
  return {{"state", StateDict(std::move(states))}, {kGroups, std::move(groups)}};
}

TorchState from_torch_layout(const StateDict& state, const TorchNames& names) {
  try {
    const std::vector<StateDict> groups = groups_in(state);
    TorchState result;
    auto named = saved_names(groups);
    result.groups = named ? std::move(*named) : names_by_position(groups, names);
    std::map<std::string_view, const StateDict*> states;
    const auto saved = state.get<StateDict>("state");
    for (const auto& [key, value] : saved) states[key] = value.get_if<StateDict>();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      result.groups[i].options = own_options(groups[i]);
      const auto params = groups[i].get<StateList>(kParams);
      for (std::size_t j = 0; j < params.size(); ++j) {
        const auto found = states.find(key_of(params[j]));
        if (found == states.end()) continue;
        if (found->second == nullptr) throw CheckpointError("state: expected dictionaries");
        result.parameters.emplace_back(result.groups[i].names[j], *found->second);
      }
    }
    return result;
  } catch (const CheckpointError& error) {
    throw CheckpointError("optimizer {}: {}", names.optimizer, error.what());
  }
}

std::int64_t steps_from(const StateValue& value) {
  double steps = -1.0;
  if (const auto* const number = value.get_if<std::int64_t>()) steps = static_cast<double>(*number);
  if (const auto* const number = value.get_if<double>()) steps = *number;
  const auto* const tensor = value.get_if<torch::Tensor>();
  if (tensor != nullptr && tensor->defined() && tensor->numel() == 1) {
    steps = tensor->item().toDouble();
  }
  if (!(steps >= 0.0 && steps <= kMostSteps)) {
    throw CheckpointError("step: expected a number of steps, found {}",
                          steps == -1.0 ? value.kind() : fmt::format("{}", steps));
  }
  return std::llround(steps);
}

torch::Tensor steps_as_tensor(std::int64_t steps) {
  return torch::full({}, static_cast<double>(steps), torch::kFloat32);
}

}  // namespace lockstep::optim
