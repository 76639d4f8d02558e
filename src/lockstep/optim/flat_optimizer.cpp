#include "lockstep/optim/flat_optimizer.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <fnmatch.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/text.h"
#include "lockstep/optim/check.h"

namespace lockstep::optim {
namespace {

std::string describe(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes(), ", "));
}

// As a shell matches names: * for anything, ? for one character, [abc] for one of them.
bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

FlatOptimizer::FlatOptimizer(FlatParameters& parameters, std::vector<std::string> slot_names)
    : parameters_(parameters) {
  for (std::string& name : slot_names) slots_.push_back({.name = std::move(name), .flat = {}});
  for (const auto& buffer : parameters_.buffers()) {
    stretches_.push_back({{.range = {.begin = 0, .end = buffer.values.numel()}}});
  }
}

void FlatOptimizer::distinguish(const std::vector<ParameterSettings>& settings) {
  if (settings.empty()) return;
  const Check check("optimizer " + name());
  std::vector<bool> used(settings.size(), false);
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    std::vector<Stretch> stretches;
    for (const auto& slice : parameters_.buffers()[i].slices) {
      Stretch stretch;
      for (std::size_t k = 0; k < settings.size(); ++k) {
        if (!matches(settings[k].names, slice.name)) continue;
        used[k] = true;
        if (settings[k].lr) {
          check.not_negative("lr of " + settings[k].names, *settings[k].lr);
          check.require(lr() > 0, "lr", "a number > 0, as others are given in relation to it",
                        lr());
          stretch.lr_scale = *settings[k].lr / lr();
        }
        if (settings[k].weight_decay) {
          check.not_negative("weight_decay of " + settings[k].names, *settings[k].weight_decay);
          stretch.weight_decay = settings[k].weight_decay;
        }
      }
      // Up to the next one: the padding between them belongs to nobody.
      if (stretches.empty() || !stretch.same_settings(stretches.back())) {
        if (!stretches.empty()) stretches.back().range.end = slice.offset;
        stretch.range.begin = slice.offset;
        stretches.push_back(stretch);
      }
    }
    stretches.back().range.end = parameters_.buffers()[i].values.numel();
    stretches_[i] = std::move(stretches);
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

void FlatOptimizer::use_slot(std::size_t slot, double initial) {
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    const torch::Tensor& flat = slots_[slot].flat.emplace_back(parameters_.zeros_like_values(i));
    if (initial != 0.0) flat.fill_(initial);
  }
}

UpdateTensors FlatOptimizer::tensors_of(std::size_t buffer) const {
  UpdateTensors tensors{.values = parameters_.buffers()[buffer].values,
                        .grads = parameters_.buffers()[buffer].grads,
                        .state = {}};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].in_use()) tensors.state[i] = slots_[i].flat[buffer];
  }
  return tensors;
}

void FlatOptimizer::step(const StepOptions& options) {
  part_ = options.part;
  if (part_.count == 1) parameters_.collect_grads();
  ++num_steps_;
  update({.scale = options.grad_scale, .zero = options.zero_grad});
  parameters_.mark_updated();
}

StateDict FlatOptimizer::state() const {
  StateDict state{{"name", name()}, {"step", num_steps_}};
  for (const auto& [key, value] : hyper_parameters()) state.set(key, value);
  for (const Slot& slot : slots_) {
    if (!slot.in_use()) continue;
    StateDict tensors;
    for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
      for (const auto& slice : parameters_.buffers()[i].slices) {
        tensors.set(slice.name,
                    slice_view(slice, slot.flat[i]).clone(torch::MemoryFormat::Contiguous));
      }
    }
    state.set(slot.name, std::move(tensors));
  }
  return state;
}

FlatOptimizer::Slot FlatOptimizer::load_slot(const std::string& name,
                                             const StateDict& tensors) const {
  Slot slot{.name = name, .flat = {}};
  std::vector<std::string> known;
  for (std::size_t i = 0; i < parameters_.buffers().size(); ++i) {
    const torch::Tensor& flat = slot.flat.emplace_back(parameters_.zeros_like_values(i));
    for (const auto& slice : parameters_.buffers()[i].slices) {
      known.push_back(slice.name);
      if (!tensors.contains(slice.name)) {
        throw CheckpointError("optimizer {}: {}: nothing for the model's parameter {}",
                              this->name(), name, slice.name);
      }
      const auto tensor = tensors.get<torch::Tensor>(slice.name);
      if (tensor.sizes() != slice.parameter.sizes() ||
          tensor.scalar_type() != slice.parameter.scalar_type()) {
        throw CheckpointError("optimizer {}: {}: parameter {}: expected {}, found {}", this->name(),
                              name, slice.name, describe(slice.parameter), describe(tensor));
      }
      slice_view(slice, flat).copy_(tensor);
    }
  }
  for (const std::string& key : tensors.keys()) {
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
  std::vector<Slot> slots;
  for (const Slot& slot : slots_) {
    if (state.contains(slot.name)) {
      slots.push_back(load_slot(slot.name, state.get<StateDict>(slot.name)));
    } else {
      slots.push_back({.name = slot.name, .flat = {}});
    }
  }
  try {
    set_hyper_parameters(state, slots);
  } catch (const ConfigError& error) {
    throw CheckpointError("in the state of an optimizer: {}", error.what());
  }
  slots_ = std::move(slots);
  num_steps_ = num_steps;
}

void FlatOptimizer::require_in_use(const Slot& slot) const {
  if (!slot.in_use())
    throw CheckpointError("optimizer {}: no '{}' in its state", name(), slot.name);
}

}  // namespace lockstep::optim
