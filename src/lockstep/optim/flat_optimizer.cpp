#include "lockstep/optim/flat_optimizer.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/describe.h"

namespace lockstep::optim {
namespace {

// The key in a state whose tensors are sent later; no file contains it.
constexpr const char* kSent = "tensors_are_sent";

std::string type_and_shape(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

}  // namespace

FlatOptimizer::FlatOptimizer(FlatParameters& parameters, std::vector<std::string> slot_names)
    : parameters_(parameters) {
  for (std::string& name : slot_names) slots_.push_back({.name = std::move(name)});
  for (const auto& buffer : parameters_.buffers()) accounts_.emplace_back(buffer.slices.size());
}

std::string FlatOptimizer::describe() const {
  std::vector<std::string> fields;
  for (const auto& [name, value] : hyper_parameters()) {
    const bool* const is_set = value.get_if<bool>();
    fields.push_back(is_set != nullptr ? fmt::format("{}={}", name, *is_set)
                                       : fmt::format("{}={}", name, *value.get_if<double>()));
  }
  return fmt::format("{}({}){}", name(), fmt::join(fields, ", "), optim::describe(settings_));
}

void FlatOptimizer::distinguish(const std::vector<ParameterSettings>& settings) {
  if (settings.empty()) return;
  settings_ = settings;
  const Check check("optimizer " + name());
  std::vector<bool> used(settings.size(), false);
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    for (std::size_t j = 0; j < accounts_[i].size(); ++j) {
      const auto& slice = parameters_.buffers()[i].slices[j];
      Account& account = accounts_[i][j];
      for (std::size_t k = 0; k < settings.size(); ++k) {
        if (!matches_pattern(settings[k].names, slice.name)) continue;
        used[k] = true;
        if (settings[k].lr) {
          check.not_negative("lr of " + settings[k].names, *settings[k].lr);
          check.require(lr() > 0, "lr", "a number > 0, as others are given in relation to it",
                        lr());
          account.lr_scale = *settings[k].lr / lr();
        }
        if (settings[k].weight_decay) {
          check.not_negative("weight_decay of " + settings[k].names, *settings[k].weight_decay);
          account.weight_decay = settings[k].weight_decay;
        }
      }
    }
  }
  for (std::size_t k = 0; k < settings.size(); ++k) {
    if (used[k] || settings[k].optional) continue;
    std::vector<std::string> names;
    for (const auto& buffer : parameters_.buffers()) {
      for (const auto& slice : buffer.slices) names.push_back(slice.name);
    }
    throw ConfigError("optimizer {}: '{}' matches no parameter; there are {}", name(),
                      settings[k].names, join(names, ", "));
  }
}

const std::vector<FlatOptimizer::Run>& FlatOptimizer::find_runs(std::size_t buffer) {
  runs_.clear();
  const std::vector<FlatParameters::Slice>& slices = parameters_.buffers()[buffer].slices;
  bool open = false;  // the last run continues
  for (std::size_t j = 0; j < slices.size(); ++j) {
    const Account& account = accounts_[buffer][j];
    const bool joins = slices[j].used && open && account == runs_.back().account;
    // A run ends where the next parameter begins. The padding between two parameters has no
    // meaning.
    if (open && !joins) runs_.back().range.end = slices[j].offset;
    if (slices[j].used && !joins) {
      runs_.push_back({.range = {.begin = slices[j].offset, .end = 0}, .account = account});
    }
    open = slices[j].used;
  }
  if (open) runs_.back().range.end = parameters_.buffers()[buffer].values.numel();
  return runs_;
}

void FlatOptimizer::use_slot(std::size_t slot, double initial) {
  slots_[slot].in_use = true;
  slots_[slot].initial = initial;
  slots_[slot].flat.resize(parameters_.buffers().size());
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    if (parameters_.buffers()[i].is_trainable()) make_room(slots_[slot], i, Part());
  }
}

void FlatOptimizer::make_room(Slot& slot, std::size_t buffer,
                              const std::optional<Part>& filled) const {
  torch::Tensor& flat = slot.flat[buffer];
  if (flat.defined()) return;
  flat = parameters_.zeros_like_values(buffer);
  if (slot.initial == 0.0 || !filled) return;
  const ElementRange range = range_of(*filled, flat.numel());
  flat.narrow(0, range.begin, range.size()).fill_(slot.initial);
}

// Also allocates the slots of buffers that have become trainable since the last step.
void FlatOptimizer::count_step() {
  ++num_steps_;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    const auto& buffer = parameters_.buffers()[i];
    if (!buffer.is_trainable()) continue;
    for (Slot& slot : slots_) {
      if (slot.in_use) make_room(slot, i, part_);
    }
    for (std::size_t j = 0; j < accounts_[i].size(); ++j) {
      if (buffer.slices[j].used) ++accounts_[i][j].steps;
    }
  }
}

UpdateTensors FlatOptimizer::tensors_of(std::size_t buffer) const {
  UpdateTensors tensors{.values = parameters_.buffers()[buffer].values,
                        .grads = parameters_.buffers()[buffer].grads,
                        .state = {}};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].in_use) tensors.state[i] = slots_[i].flat[buffer];
  }
  return tensors;
}

FlatOptimizer::Rates FlatOptimizer::rates_of(const Rates& common, std::size_t buffer,
                                             std::size_t slice) const {
  const Account& account = accounts_[buffer][slice];
  return {.lr = common.lr * account.lr_scale,
          .weight_decay = account.weight_decay.value_or(common.weight_decay),
          .step = account.steps};
}

void FlatOptimizer::step(const StepOptions& options) {
  part_ = options.part;
  wait_for_parts_ = options.wait_for_parts;
  if (part_.count == 1) parameters_.collect_grads();
  count_step();
  update({.scale = options.grad_scale, .zero = options.zero_grad});
  parameters_.mark_updated();
  if (options.zero_grad) parameters_.forget_use();
}

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
  for (const auto& [key, value] : hyper_parameters()) state.set(key, value);
  for (const Slot& slot : slots_) {
    if (!slot.in_use) continue;
    std::vector<StateDict::Entry> tensors;
    for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
      if (!slot.flat[i].defined()) continue;
      for (const auto& slice : parameters_.buffers()[i].slices) {
        tensors.emplace_back(slice.name, take(slice_view(slice, slot.flat[i])));
      }
    }
    state.set(slot.name, StateDict(std::move(tensors)));
  }
  return state;
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

FlatOptimizer::Slot FlatOptimizer::load_slot(Slot slot, const SavedSlot& saved,
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
      const torch::Tensor& flat = slot.flat[i];
      const auto tensor = saved.tensors.get<torch::Tensor>(slice.name);
      if (tensor.sizes() != slice.parameter.sizes() ||
          tensor.scalar_type() != slice.parameter.scalar_type()) {
        throw CheckpointError("optimizer {}: {}: parameter {}: expected {}, found {}", this->name(),
                              name, slice.name, type_and_shape(slice.parameter),
                              type_and_shape(tensor));
      }
      slice_view(slice, flat).copy_(tensor);
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

void FlatOptimizer::load_state(const StateDict& state) {
  const auto found = state.get<std::string>("name");
  if (found != name()) {
    throw CheckpointError("optimizer {}: expected its own state, found that of {}", name(), found);
  }
  const auto num_steps = state.get<std::int64_t>("step");
  torch::NoGradGuard no_grad;
  Accounts accounts = load_accounts(state);
  std::vector<Slot> slots;
  for (const Slot& known : slots_) {
    Slot slot{.name = known.name, .initial = initial_in(state, slots.size())};
    if (state.contains(slot.name)) {
      slot = load_slot(std::move(slot),
                       {.tensors = state.get<StateDict>(known.name), .sent = state.contains(kSent)},
                       accounts);
    }
    slots.push_back(std::move(slot));
  }
  try {
    set_hyper_parameters(state, slots);
  } catch (const ConfigError& error) {
    throw CheckpointError("in the state of an optimizer: {}", error.what());
  }
  slots_ = std::move(slots);
  accounts_ = std::move(accounts);
  num_steps_ = num_steps;
}

StateDict FlatOptimizer::without_tensors(const StateDict& state) const {
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

std::vector<torch::Tensor> FlatOptimizer::tensors() const {
  std::vector<torch::Tensor> all;
  for (const Slot& slot : slots_) {
    for (const torch::Tensor& flat : slot.flat) {
      if (flat.defined()) all.push_back(flat);
    }
  }
  return all;
}

void FlatOptimizer::require_in_use(const Slot& slot) const {
  if (!slot.in_use) throw CheckpointError("optimizer {}: no '{}' in its state", name(), slot.name);
}

}  // namespace lockstep::optim
