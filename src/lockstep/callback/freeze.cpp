#include "lockstep/callback/freeze.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"
#include "lockstep/callback/parameter_patterns.h"

namespace lockstep {
namespace {
constexpr const char* kFreeze = "FreezeCallback";
}

FreezeCallback::FreezeCallback(FreezeCallbackOptions options) : options_(std::move(options)) {
  if (options_.names.empty()) {
    throw ConfigError("{}: names: expected a parameter or a pattern, got none", kFreeze);
  }
  if (options_.from_epoch < 1) {
    throw ConfigError("{}: from_epoch: expected 1 or more, got {}", kFreeze, options_.from_epoch);
  }
  if (options_.epochs && *options_.epochs < 1) {
    throw ConfigError("{}: epochs: expected 1 or more, got {}", kFreeze, *options_.epochs);
  }
}

std::string FreezeCallback::agreed_options() const {
  return OptionText()
      .with("names", options_.names)
      .with("from_epoch", options_.from_epoch)
      .with("epochs", options_.epochs)
      .with("eval", options_.eval)
      .str();
}

void FreezeCallback::check(const State& state) const {
  check_parameter_patterns(options_.names, state, kFreeze);
  const NamedTensors parameters = state.model.parameters();
  const bool any_left = std::ranges::any_of(parameters, [&](const auto& item) {
    return item.second.requires_grad() && !matches_any(options_.names, item.first);
  });
  if (any_left) return;
  throw ConfigError(
      "{}: names: {} would freeze all parameters, so there would be nothing to train; leave some "
      "out",
      kFreeze, join(options_.names, ", "));
}

// After a failed attempt of the run, the parameters require gradients as before it. What that
// attempt froze must not be thawed later: another callback may have frozen it.
void FreezeCallback::on_run_start(State&) {
  frozen_.clear();
}

void FreezeCallback::on_epoch_start(State& state) {
  if (!is_frozen_in(state.progress.epoch)) return;
  for (auto& [name, parameter] : state.model.parameters()) {
    if (!parameter.requires_grad() || !matches_any(options_.names, name)) continue;
    parameter.set_requires_grad(false);
    frozen_.push_back(parameter);
  }
}

// The loop has called train() of the model just before, so nothing has to be undone later.
void FreezeCallback::on_loader_start(State& state) {
  if (!options_.eval || !state.is_train || !is_frozen_in(state.progress.epoch)) return;
  const NamedTensors parameters = state.model.parameters();
  state.model.eval_modules([&](const std::string& module) {
    bool has_parameters = false;
    for (const auto& [name, parameter] : parameters) {
      if (!module.empty() && !name.starts_with(module + ".")) continue;
      if (!matches_any(options_.names, name)) return false;
      has_parameters = true;
    }
    return has_parameters;
  });
}

// All callbacks thaw before one of them freezes for the next epoch. So none of them thaws what
// another one, which found it frozen already, needs frozen in that epoch.
void FreezeCallback::on_epoch_end(State&) {
  thaw();
}

void FreezeCallback::on_run_end(State&) {
  thaw();
}

bool FreezeCallback::is_frozen_in(std::int64_t epoch) const {
  const std::int64_t passed = epoch - options_.from_epoch;
  return passed >= 0 && (!options_.epochs || passed < *options_.epochs);
}

void FreezeCallback::thaw() {
  for (const torch::Tensor& parameter : frozen_) parameter.set_requires_grad(true);
  frozen_.clear();
}

}  // namespace lockstep
