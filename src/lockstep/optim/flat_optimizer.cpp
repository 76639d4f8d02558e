#include "lockstep/optim/flat_optimizer.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "lockstep/base/check.h"
#include "lockstep/base/text.h"
#include "lockstep/optim/describe.h"

namespace lockstep::optim {

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
        if (settings[k].lr_factor) {
          check.not_negative("lr_factor of " + settings[k].names, *settings[k].lr_factor);
          account.lr_scale = *settings[k].lr_factor;
        }
        if (settings[k].weight_decay) {
          check.not_negative("weight_decay of " + settings[k].names, *settings[k].weight_decay);
          account.weight_decay = settings[k].weight_decay;
        }
      }
    }
  }
  for (std::size_t k = 0; k < settings.size(); ++k) {
    if (settings[k].lr && settings[k].lr_factor) {
      throw ConfigError("optimizer {}: '{}': expected lr or lr_factor, got both", name(),
                        settings[k].names);
    }
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
