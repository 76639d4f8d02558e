#include "lockstep/callback/early_stopping.h"

#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
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

std::string EarlyStoppingCallback::agreed_options() const {
  return OptionText()
      .with("patience", options_.patience)
      .with("metric", describe(options_.metric))
      .with("minimize", options_.minimize)
      .with("min_delta", options_.min_delta)
      .str();
}

void EarlyStoppingCallback::check(const State& state) const {
  if (selection_in(state).key) return;
  throw ConfigError("{}: set its metric, or valid_loader and valid_metric", kEarlyStopping);
}

Selection EarlyStoppingCallback::selection_in(const State& state) const {
  return selection_for(
      state,
      {.metric = options_.metric, .minimize = options_.minimize, .asked_by = kEarlyStopping});
}

void EarlyStoppingCallback::on_run_start(State& state) {
  selection_ = selection_in(state);
  const bool resumed = std::exchange(resumed_, false) && state.progress.epoch > 0;
  if (!resumed) {
    best_.reset();
    misses_ = 0;
  }
  stop_if_out_of_patience(state);  // if a run that was stopped before is resumed
}

void EarlyStoppingCallback::on_epoch_end(State& state) {
  const auto score = metric_if_run(state, *selection_.key, kEarlyStopping);
  if (!score) return;  // the loader was left out of this epoch
  const bool better = best_ ? selection_.is_better(*score, *best_) &&
                                  std::abs(*score - *best_) >= options_.min_delta
                            : !std::isnan(*score);
  if (better) {
    best_ = *score;
    misses_ = 0;
  } else {
    ++misses_;
  }
  stop_if_out_of_patience(state);
}

void EarlyStoppingCallback::stop_if_out_of_patience(State& state) const {
  if (misses_ < options_.patience) return;
  const MetricKey& key = *selection_.key;
  state.request_stop(fmt::format("{} {} has not been better than {} for {} epochs", key.loader,
                                 key.metric, best_ ? format_metric(*best_) : "NaN", misses_));
}

StateDict EarlyStoppingCallback::state() const {
  StateDict state{{"misses", misses_}};
  if (best_) state.set("best", *best_);
  return state;
}

void EarlyStoppingCallback::load_state(const StateDict& state) {
  resumed_ = state.size() > 0;  // else on_run_start resets it
  if (!resumed_) return;
  misses_ = state.get<std::int64_t>("misses");
  best_.reset();
  if (state.contains("best")) best_ = state.get<double>("best");
}

}  // namespace lockstep
