#include "lockstep/callback/early_stopping.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {
constexpr const char* kEarlyStopping = "EarlyStoppingCallback";
}

EarlyStoppingCallback::EarlyStoppingCallback(EarlyStoppingCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.patience < 1) {
    throw ConfigError("{}: patience: expected 1 or more, got {}", kEarlyStopping,
                      options_.patience);
  }
  if (!(options_.min_delta >= 0)) {
    throw ConfigError("{}: min_delta: expected 0 or more, got {}", kEarlyStopping,
                      options_.min_delta);
  }
}

void EarlyStoppingCallback::check(const State& state) const {
  const auto& key = options_.metric ? options_.metric : state.selection.key;
  if (!key)
    throw ConfigError("{}: set its metric, or valid_loader and valid_metric", kEarlyStopping);
  check_metric_key(state, *key, kEarlyStopping);
  minimizes(state);
}

bool EarlyStoppingCallback::minimizes(const State& state) const {
  if (!options_.minimize && !options_.metric) return state.selection.minimize;
  return lockstep::minimizes(state, {.said = options_.minimize,
                                     .metric = options_.metric ? options_.metric->metric : "",
                                     .asked_by = kEarlyStopping,
                                     .option = "its minimize"});
}

void EarlyStoppingCallback::on_run_start(State& state) {
  metric_ = options_.metric ? *options_.metric : *state.selection.key;
  minimize_ = minimizes(state);
  const bool resumed = std::exchange(resumed_, false) && state.progress.epoch > 0;
  if (!resumed) {
    best_.reset();
    misses_ = 0;
  }
  stop_if_out_of_patience(state);  // if a run that was stopped before is resumed
}

void EarlyStoppingCallback::on_epoch_end(State& state) {
  const double score = metric_value(state, metric_, kEarlyStopping);
  const double gain = !best_ ? 0 : minimize_ ? *best_ - score : score - *best_;
  const bool better = best_ ? gain >= options_.min_delta && gain > 0 : !std::isnan(score);
  if (better) {
    best_ = score;
    misses_ = 0;
  } else {
    ++misses_;
  }
  stop_if_out_of_patience(state);
}

void EarlyStoppingCallback::stop_if_out_of_patience(State& state) const {
  if (misses_ < options_.patience) return;
  state.request_stop(fmt::format("{} {} has not been better than {} for {} epochs", metric_.loader,
                                 metric_.metric, best_ ? format_metric(*best_) : "NaN", misses_));
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
