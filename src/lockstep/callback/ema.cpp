#include "lockstep/callback/ema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/warn.h"

namespace lockstep {
namespace {

constexpr const char* kEma = "EmaCallback";

}  // namespace

EmaCallback::EmaCallback(EmaCallbackOptions options) : options_(std::move(options)) {
  if (!(options_.decay >= 0 && options_.decay < 1)) {
    throw ConfigError("{}: decay: expected a number from 0 to below 1, got {}", kEma,
                      options_.decay);
  }
  for (const auto& [name, value] :
       {std::pair("every", options_.every), std::pair("start_epoch", options_.start_epoch),
        std::pair("start_step", options_.start_step)}) {
    if (value < 1) throw ConfigError("{}: {}: expected 1 or more, got {}", kEma, name, value);
  }
  for (const auto& [name, value] : {std::pair("warmup_gamma", options_.warmup_gamma),
                                    std::pair("warmup_power", options_.warmup_power)}) {
    if (value > 0) continue;
    throw ConfigError("{}: {}: expected a positive number, got {}", kEma, name, value);
  }
}

double EmaCallback::decay_of(std::int64_t n) const {
  if (!options_.warmup) return options_.decay;
  const double base = 1 + static_cast<double>(n) / options_.warmup_gamma;
  return std::min(options_.decay, 1 - std::pow(base, -options_.warmup_power));
}

std::string EmaCallback::agreed_options() const {
  return OptionText()
      .with("decay", options_.decay)
      .with("every", options_.every)
      .with("start_epoch", options_.start_epoch)
      .with("start_step", options_.start_step)
      .with("warmup", options_.warmup)
      .with("warmup_gamma", options_.warmup_gamma)
      .with("warmup_power", options_.warmup_power)
      .with("networks", options_.networks)
      .with("remake_batch_norm", options_.remake_batch_norm)
      .str();
}

AveragedWeights::Request EmaCallback::request() const {
  return {.asked_by = kEma,
          .networks = options_.networks,
          .remake_batch_norm = options_.remake_batch_norm};
}

void EmaCallback::check(const State& state) const {
  AveragedWeights::check(request(), state);
}

void EmaCallback::on_run_start(State& state) {
  state.averaged->open(request());
  if (!state.averaged->exists()) updates_ = 0;
}

void EmaCallback::on_step(State& state) {
  // While gradients wait for a later batch, there is no update.
  if (!state.is_train || state.stepped.empty()) return;
  const std::int64_t step = state.progress.update_step;
  const bool has_begun =
      state.progress.epoch >= options_.start_epoch && step >= options_.start_step;
  if (!has_begun || step % options_.every != 0) return;
  state.averaged->add(updates_ == 0 ? 1.0 : 1.0 - decay_of(updates_));
  ++updates_;
}

void EmaCallback::on_run_end(State& state) {
  if (state.exception || updates_ > 0 || !state.comm->is_primary()) return;
  warn(fmt::format(
      "{}: the run ended in epoch {}, after {} updates, before anything was averaged (every {}, "
      "start_epoch {}, start_step {}): the model has the weights of the last update",
      kEma, state.progress.epoch, state.progress.update_step, options_.every, options_.start_epoch,
      options_.start_step));
}

StateDict EmaCallback::state() const {
  return updates_ == 0 ? StateDict() : StateDict{{"updates", updates_}};
}

void EmaCallback::load_state(const StateDict& state) {
  updates_ = state.get_or<std::int64_t>("updates", 0);
}

}  // namespace lockstep
