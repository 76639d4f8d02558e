#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/flat_optimizer.h"
#include "lockstep/optim/torch_layout.h"

namespace lockstep::optim {
namespace {

// The key in a state whose tensors are sent later; no file contains it.
constexpr const char* kSent = "tensors_are_sent";
// The key of the names of the slots in use.
constexpr const char* kSlots = "slots";

std::string type_and_shape(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

// A hyper-parameter of PyTorch's groups that must be the same for all parameters.
class SameValue {
 public:
  explicit SameValue(const char* what) : what_(what) {}

  void add(const std::string& parameter, double value) {
    if (!value_) value_ = value;
    // Ratios of learning rates are rounded.
    if (std::abs(value - *value_) <= 1e-6 * std::abs(*value_)) return;
    throw CheckpointError(
        "{} of parameter {}: the settings of this run make it equal to {}, found the equivalent of "
        "{}; give this run the settings by name (ParameterSettings) that Python's groups have",
        what_, printable(parameter), *value_, value);
  }
  const std::optional<double>& value() const { return value_; }

 private:
  const char* what_;
  std::optional<double> value_;
};

bool is_true(const StateDict& options, const char* name) {
  return options.contains(name) && options.at(name).get_if<bool>() != nullptr &&
         options.get<bool>(name);
}

std::optional<double> number_in(const StateValue& value) {
  if (const auto* const held = value.get_if<bool>()) return *held ? 1.0 : 0.0;
  if (const auto* const held = value.get_if<std::int64_t>()) return static_cast<double>(*held);
  if (const auto* const held = value.get_if<double>()) return *held;
  return std::nullopt;
}

// A state of Python has no name of its optimizer. Those with the same tensors, such as Adam, RAdam
// and NAdam, differ in their options.
void refuse_other_optimizer(const std::string& optimizer, const StateDict& own,
                            const StateDict& options) {
  for (const std::string& key : own.keys()) {
    if (options.contains(key)) continue;
    throw CheckpointError("found no '{}', which {} has; was it saved by another optimizer?",
                          key.starts_with("beta") ? "betas" : key, optimizer);
  }
  for (const char* const key : {"amsgrad", "momentum_decay"}) {
    if (own.contains(key) || !options.contains(key)) continue;
    throw CheckpointError("found '{}', which {} does not have; was it saved by another optimizer?",
                          key, optimizer);
  }
  // Older versions of PyTorch do not write it for Adam and AdamW.
  constexpr const char* kDecoupled = "decoupled_weight_decay";
  if (optimizer != "AdamW" && is_true(options, kDecoupled)) {
    throw CheckpointError("{} is set, which Lockstep has for Adam only, as AdamW", kDecoupled);
  }
  if (optimizer == "AdamW" && options.contains(kDecoupled) && !is_true(options, kDecoupled)) {
    throw CheckpointError("{} is not set: it is the state of Adam, not of AdamW", kDecoupled);
  }
}

// Options of PyTorch's that change the result and that Lockstep's optimizers do not have.
void refuse_unknown_options(const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& group : groups) {
    if (is_true(group.options, "maximize")) {
      throw CheckpointError("maximize is set, which Lockstep's optimizers do not have");
    }
    for (const auto& [key, value] : groups.front().options) {
      if (key == "lr" || key == "weight_decay" || key == "initial_lr") continue;
      const auto first = number_in(value);
      const bool is_same =
          !first || !group.options.contains(key) || number_in(group.options.at(key)) == first;
      if (!is_same) {
        throw CheckpointError("{} differs between param_groups; only lr and weight_decay may", key);
      }
    }
  }
}

}  // namespace

// The numbers of steps of the parameters that missed a step.
StateDict FlatOptimizer::uneven_steps() const {
  StateDict steps;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    for (std::size_t j = 0; j < accounts_[i].size(); ++j) {
      if (accounts_[i][j].steps == num_steps_) continue;
      steps.set(parameters_.buffers()[i].slices[j].name, accounts_[i][j].steps);
    }
  }
  return steps;
}

StateDict FlatOptimizer::state() const {
  return state_with(
      [](const torch::Tensor& part) { return part.clone(torch::MemoryFormat::Contiguous); });
}

StateDict FlatOptimizer::view_state() const {
  return state_with([](const torch::Tensor& part) { return part; });
}

StateDict FlatOptimizer::state_with(const TakeTensor& take) const {
  StateDict state{{"name", name()}, {"step", num_steps_}};
  if (StateDict steps = uneven_steps(); steps.size() > 0) state.set("steps", std::move(steps));
  StateList slots;
  for (const Slot& slot : slots_) {
    if (slot.in_use) slots.emplace_back(slot.name);
  }
  state.set(kSlots, std::move(slots));
  for (const auto& [key, value] : hyper_parameters()) state.set(key, value);
  for (const auto& [key, value] :
       to_torch_layout({.groups = groups(), .parameters = states_of_parameters(take)})) {
    state.set(key, value);
  }
  return state;
}

std::map<std::string_view, const FlatOptimizer::Account*> FlatOptimizer::accounts_by_name() const {
  std::map<std::string_view, const Account*> accounts;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    for (std::size_t j = 0; j < accounts_[i].size(); ++j) {
      accounts[parameters_.buffers()[i].slices[j].name] = &accounts_[i][j];
    }
  }
  return accounts;
}

// Parameters with the same settings are a group, as in PyTorch. Those without settings come first.
std::vector<ParameterGroup> FlatOptimizer::groups() const {
  const auto accounts = accounts_by_name();
  const Account common;
  std::vector<std::pair<Account, ParameterGroup>> found{{common, {}}};
  for (const std::string& name : parameters_.names()) {
    const auto at = accounts.find(name);
    Account account = at == accounts.end() ? common : *at->second;  // some are never trained
    account.steps = 0;
    auto group = std::ranges::find(found, account, [](const auto& item) { return item.first; });
    if (group == found.end()) group = found.insert(found.end(), {account, {}});
    group->second.names.push_back(name);
  }
  std::vector<ParameterGroup> groups;
  for (auto& [account, group] : found) {
    if (group.names.empty()) continue;
    group.options = hyper_parameters();
    group.options.set("lr", lr() * account.lr_scale);
    if (account.weight_decay) group.options.set("weight_decay", *account.weight_decay);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::vector<std::pair<std::string, StateDict>> FlatOptimizer::states_of_parameters(
    const TakeTensor& take) const {
  std::vector<std::pair<std::string, StateDict>> states;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    const auto& buffer = parameters_.buffers()[i];
    for (std::size_t j = 0; j < accounts_[i].size(); ++j) {
      const std::int64_t steps = accounts_[i][j].steps;
      // Its tensors still have their first values.
      const bool has_none = steps == 0 && !(has_state_at_once() && buffer.is_trainable());
      if (has_none) continue;
      StateDict state = torch_counters(steps);
      for (const Slot& slot : slots_) {
        if (!slot.in_use || !slot.flat[i].defined()) continue;
        state.set(slot.name, take(slice_view(buffer.slices[j], slot.flat[i])));
      }
      if (state.size() > 0) states.emplace_back(buffer.slices[j].name, std::move(state));
    }
  }
  return states;
}

StateDict FlatOptimizer::torch_counters(std::int64_t steps) const {
  return {{"step", steps_as_tensor(steps)}};
}

std::int64_t FlatOptimizer::steps_in(const StateDict& parameter) const {
  return steps_from(parameter.at("step"));
}

StateDict FlatOptimizer::by_slot(const StateDict& state) const {
  if (!has_torch_layout(state)) return state;  // of version 0.1.0, or made by this function
  TorchNames names{.optimizer = name(), .groups = groups(), .all = parameters_.names()};
  std::set<std::string_view> trainable;
  for (const auto& buffer : parameters_.buffers()) {
    for (const auto& slice : buffer.slices) {
      if (slice.parameter.requires_grad()) trainable.insert(slice.name);
    }
  }
  std::ranges::copy_if(names.all, std::back_inserter(names.trainable),
                       [&](const std::string& one) { return trainable.contains(one); });
  const TorchState saved = from_torch_layout(state, names);
  StateDict result = state.contains("name") ? own_values(state) : values_of_python(saved);
  for (const Slot& slot : slots_) {
    std::vector<StateDict::Entry> tensors;
    for (const auto& [parameter, kinds] : saved.parameters) {
      if (!kinds.contains(slot.name)) continue;
      const auto* const tensor = kinds.at(slot.name).get_if<torch::Tensor>();
      if (tensor != nullptr && tensor->defined()) tensors.emplace_back(parameter, *tensor);
    }
    if (tensors.empty() && !result.contains(slot.name)) continue;
    result.set(slot.name, StateDict(std::move(tensors)));
  }
  return result;
}

// Everything but the tensors, of a state that Lockstep saved. A slot in use has an empty entry.
StateDict FlatOptimizer::own_values(const StateDict& state) const {
  StateDict values;
  for (const auto& [key, value] : state) {
    if (key != "state" && key != "param_groups" && key != kSlots) values.set(key, value);
  }
  for (const StateValue& item : state.get<StateList>(kSlots)) {
    if (const auto* const slot = item.get_if<std::string>()) values.set(*slot, StateDict());
  }
  return values;
}

// The same of a state that an optimizer of PyTorch saved.
StateDict FlatOptimizer::values_of_python(const TorchState& saved) const {
  StateDict values;
  try {
    values = options_of_python(saved.groups);
  } catch (const CheckpointError& error) {
    throw CheckpointError("optimizer {}: param_groups: {}", name(), error.what());
  }
  std::int64_t most = 0;
  StateDict steps;
  for (const std::string& parameter : parameters_.names()) steps.set(parameter, 0);
  for (const auto& [parameter, kinds] : saved.parameters) {
    for (const auto& [kind, value] : kinds) {
      const bool is_known = std::ranges::any_of(
          slots_, [&, &kind = kind](const Slot& slot) { return slot.name == kind; });
      const bool is_counter = kind == "step" || torch_counters(1).contains(kind);
      if (is_known || is_counter || value.get_if<std::monostate>() != nullptr) continue;
      throw CheckpointError(
          "optimizer {}: the state of parameter {} has '{}', which {} does not have; was it saved "
          "by another optimizer?",
          name(), printable(parameter), printable(kind), name());
    }
    const std::int64_t count = steps_in(kinds);
    most = std::max(most, count);
    steps.set(parameter, count);
  }
  // An optimizer that never made a step has no tensors yet.
  for (const Slot& slot : slots_) {
    if (slot.in_use && most == 0) values.set(slot.name, StateDict());
  }
  values.set("name", name());
  values.set("step", most);
  values.set("steps", std::move(steps));
  return values;
}

StateDict FlatOptimizer::options_of_python(const std::vector<ParameterGroup>& groups) const {
  const StateDict own = hyper_parameters();
  for (const auto& group : groups) refuse_other_optimizer(name(), own, group.options);
  refuse_unknown_options(groups);
  StateDict options;
  for (const std::string& key : own.keys()) options.set(key, groups.front().options.at(key));
  // lr and weight_decay of parameters with settings come from the options of this run.
  const auto accounts = accounts_by_name();
  SameValue lr("lr"), weight_decay("weight_decay");
  for (const ParameterGroup& group : groups) {
    const double group_lr = group.options.get<double>("lr");
    const double group_decay = group.options.get_or("weight_decay", 0.0);
    for (const std::string& parameter : group.names) {
      const auto found = accounts.find(parameter);
      if (found == accounts.end()) continue;
      const Account& account = *found->second;
      if (account.lr_scale > 0.0) lr.add(parameter, group_lr / account.lr_scale);
      if (!account.weight_decay) weight_decay.add(parameter, group_decay);
    }
  }
  if (lr.value()) options.set("lr", *lr.value());
  if (weight_decay.value()) options.set("weight_decay", *weight_decay.value());
  return options;
}

FlatOptimizer::Accounts FlatOptimizer::load_accounts(const StateDict& state) const {
  Accounts accounts = accounts_;
  const auto num_steps = state.get<std::int64_t>("step");
  const auto steps = state.get_or<StateDict>("steps", {});
  // A state of version 0.1.0 has nothing for parameters that were frozen when its run began.
  const auto has_tensors = [&](const std::string& name) {
    return std::ranges::any_of(slots_, [&](const Slot& slot) {
      return state.contains(slot.name) && state.get<StateDict>(slot.name).contains(name);
    });
  };
  for (std::size_t i = 0; i < accounts.size(); ++i) {
    const auto& buffer = parameters_.buffers()[i];
    for (std::size_t j = 0; j < accounts[i].size(); ++j) {
      const std::string& name = buffer.slices[j].name;
      const bool begun = buffer.is_trainable() || has_tensors(name);
      accounts[i][j].steps = steps.get_or<std::int64_t>(name, begun ? num_steps : 0);
    }
  }
  return accounts;
}

FlatOptimizer::Slot FlatOptimizer::checked_slot(Slot slot, const SavedSlot& saved,
                                                const Accounts& accounts) const {
  const std::string name = slot.name;
  const std::optional<Part> filled = saved.sent ? std::nullopt : std::optional(Part());
  slot.in_use = true;
  slot.flat.resize(parameters_.buffers().size());
  std::vector<std::string> known;
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    const auto& buffer = parameters_.buffers()[i];
    for (std::size_t j = 0; j < buffer.slices.size(); ++j) {
      const auto& slice = buffer.slices[j];
      known.push_back(slice.name);
      const bool there = saved.tensors.contains(slice.name);
      if (there || buffer.is_trainable()) make_room(slot, i, filled);
      if (!there) {
        if (accounts[i][j].steps == 0) continue;
        throw CheckpointError("optimizer {}: {}: nothing for the model's parameter {}",
                              this->name(), name, slice.name);
      }
      if (saved.sent) continue;
      const auto tensor = saved.tensors.get<torch::Tensor>(slice.name);
      if (tensor.sizes() != slice.parameter.sizes() ||
          tensor.scalar_type() != slice.parameter.scalar_type()) {
        throw CheckpointError("optimizer {}: {}: parameter {}: expected {}, found {}", this->name(),
                              name, slice.name, type_and_shape(slice.parameter),
                              type_and_shape(tensor));
      }
    }
  }
  for (const std::string& key : saved.tensors.keys()) {
    if (std::ranges::find(known, key) == known.end()) {
      throw CheckpointError("optimizer {}: {}: the model has no parameter {}; {}", this->name(),
                            name, key, suggest(key, known));
    }
  }
  return slot;
}

void FlatOptimizer::fill_slot(const Slot& slot, const StateDict& tensors) const {
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    if (!slot.flat[i].defined()) continue;
    for (const auto& slice : parameters_.buffers()[i].slices) {
      const torch::Tensor values = slice_view(slice, slot.flat[i]);
      if (tensors.contains(slice.name)) {
        values.copy_(tensors.get<torch::Tensor>(slice.name));
      } else {
        values.fill_(slot.initial);
      }
    }
  }
}

void FlatOptimizer::load_state(const StateDict& saved) {
  const StateDict state = by_slot(saved);
  const auto found = state.get<std::string>("name");
  if (found != name()) {
    throw CheckpointError("optimizer {}: expected its own state, found that of {}", name(), found);
  }
  const auto num_steps = state.get<std::int64_t>("step");
  torch::NoGradGuard no_grad;
  Accounts accounts = load_accounts(state);
  const bool sent = state.contains(kSent);
  std::vector<Slot> slots;
  for (const Slot& known : slots_) {
    Slot slot{.name = known.name, .initial = initial_in(state, slots.size())};
    if (state.contains(slot.name)) {
      // The memory is used again: a second one would double the peak of a resume. If it is shared,
      // every rank has made its optimizer by now, and does not fill it any more.
      slot.flat = known.flat;
      slot = checked_slot(std::move(slot),
                          {.tensors = state.get<StateDict>(known.name), .sent = sent}, accounts);
    }
    slots.push_back(std::move(slot));
  }
  try {
    set_hyper_parameters(state, slots);
  } catch (const ConfigError& error) {
    throw CheckpointError("in the state of an optimizer: {}", error.what());
  }
  // Nothing throws from here on.
  for (const Slot& slot : slots) {
    if (slot.in_use && !sent) fill_slot(slot, state.get<StateDict>(slot.name));
  }
  slots_ = std::move(slots);
  accounts_ = std::move(accounts);
  num_steps_ = num_steps;
}

StateDict FlatOptimizer::without_tensors(const StateDict& saved) const {
  const StateDict state = by_slot(saved);
  StateDict small = state;
  small.set(kSent, true);
  for (const Slot& slot : slots_) {
    if (!state.contains(slot.name)) continue;
    StateDict names;
    for (const std::string& name : state.get<StateDict>(slot.name).keys()) names.set(name, {});
    small.set(slot.name, std::move(names));
  }
  return small;
}

}  // namespace lockstep::optim
