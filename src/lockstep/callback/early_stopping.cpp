#include "lockstep/callback/early_stopping.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {
constexpr const char* kWho = "EarlyStoppingCallback";
}

EarlyStoppingCallback::EarlyStoppingCallback(EarlyStoppingCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.patience < 1) {
    throw ConfigError("{}: patience: expected 1 or more, got {}", kWho, options_.patience);
  }
  if (!(options_.min_delta >= 0)) {
    throw ConfigError("{}: min_delta: expected 0 or more, got {}", kWho, options_.min_delta);
  }
}

void EarlyStoppingCallback::on_run_start(State& state) {
  if (!options_.metric) options_.metric = state.selection.key;
  if (!options_.metric) {
    throw ConfigError("{}: set its metric, or valid_loader and valid_metric", kWho);
  }
  if (!options_.minimize) options_.minimize = state.selection.minimize;
  check_metric_key(state, *options_.metric, kWho);
  if (std::exchange(resumed_, false)) return;
  best_.reset();
  misses_ = 0;
}

void EarlyStoppingCallback::on_epoch_end(State& state) {
  const double score = metric_value(state, *options_.metric, kWho);
  const double gain = !best_ ? 0 : *options_.minimize ? *best_ - score : score - *best_;
  const bool better = best_ ? gain >= options_.min_delta && gain > 0 : !std::isnan(score);
  if (better) {
    best_ = score;
    misses_ = 0;
  } else if (++misses_ >= options_.patience) {
    state.request_stop(fmt::format("{} {} has not been better than {} for {} epochs",
                                   options_.metric->loader, options_.metric->metric,
                                   best_ ? format_metric(*best_) : "NaN", misses_));
  }
}

StateDict EarlyStoppingCallback::state() const {
  StateDict state{{"misses", misses_}};
  if (best_) state.set("best", *best_);
  return state;
}

void EarlyStoppingCallback::load_state(const StateDict& state) {
  misses_ = state.get<std::int64_t>("misses");
  best_.reset();
  if (state.contains("best")) best_ = state.get<double>("best");
  resumed_ = true;
}

}  // namespace lockstep
