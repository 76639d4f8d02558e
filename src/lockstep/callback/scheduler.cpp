#include "lockstep/callback/scheduler.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"

namespace lockstep {

SchedulerCallback::SchedulerCallback(SchedulerCallbackOptions options)
    : options_(std::move(options)) {}

std::string SchedulerCallback::agreed_options() const {
  std::map<std::string, std::string> metrics;
  for (const auto& [name, key] : options_.metrics) metrics[name] = describe(key);
  return OptionText().with("metric", describe(options_.metric)).with("metrics", metrics).str();
}

std::string SchedulerCallback::asked_by(const State& state, const Item& item) {
  const std::string type = "scheduler " + item.scheduler.name();
  return state.schedulers.size() > 1 ? fmt::format("{} of '{}'", type, item.name) : type;
}

std::optional<MetricKey> SchedulerCallback::own_metric(const std::string& name) const {
  const auto found = options_.metrics.find(name);
  return found != options_.metrics.end() ? std::optional(found->second) : options_.metric;
}

std::optional<MetricKey> SchedulerCallback::metric(const State& state,
                                                   const std::string& name) const {
  const auto own = own_metric(name);
  return own ? own : state.selection.key;
}

void SchedulerCallback::check(const State& state) const {
  if (state.schedulers.empty()) {
    throw ConfigError(
        "SchedulerCallback: there is no scheduler; pass .scheduler or override "
        "get_scheduler()");
  }
  check_names(state);
  for (const auto& [name, scheduler] : state.schedulers) check(state, {name, *scheduler});
}

void SchedulerCallback::check_names(const State& state) const {
  for (const auto& [name, key] : options_.metrics) {
    if (!state.schedulers.contains(name)) {
      throw ConfigError("SchedulerCallback: metrics: no scheduler has an optimizer '{}'; {}", name,
                        suggest(name, state.schedulers.names()));
    }
    if (!state.schedulers[name]->will_need_metric()) {
      throw ConfigError(
          "SchedulerCallback: metrics: {} would be ignored, because the scheduler of '{}', {}, "
          "observes no metric; leave it out",
          describe(key), name, state.schedulers[name]->name());
    }
  }
}

void SchedulerCallback::check(const State& state, const Item& item) const {
  if (!item.scheduler.will_need_metric()) return;
  const std::string whose = asked_by(state, item);
  if (item.scheduler.needs_metric() && item.scheduler.per() == optim::Per::kBatch) {
    throw ConfigError("{}: needs a loader's metric, so it cannot step after each batch", whose);
  }
  const auto key = metric(state, item.name);
  if (!key) {
    throw ConfigError(
        "{}: needs a metric; set valid_loader and valid_metric, or pass a "
        "SchedulerCallback with one",
        whose);
  }
  check_metric_key(state, *key, whose);
  if (item.scheduler.needs_direction()) selection_in(state, item);
}

Selection SchedulerCallback::selection_in(const State& state, const Item& item) const {
  const std::string whose = asked_by(state, item);
  return selection_for(
      state, {.metric = own_metric(item.name), .minimize = std::nullopt, .asked_by = whose});
}

void SchedulerCallback::on_run_start(State& state) {
  for (const auto& [name, scheduler] : state.schedulers) {
    if (scheduler->needs_direction()) {
      scheduler->set_minimize(selection_in(state, {name, *scheduler}).minimize);
    }
  }
}

// Steps only if the optimizer has: with gradient accumulation and with phases, not every batch
// steps it.
void SchedulerCallback::on_step(State& state) {
  for (const auto& [name, scheduler] : state.schedulers) {
    const bool has_stepped = std::ranges::find(state.stepped, name) != state.stepped.end();
    if (has_stepped && scheduler->per() == optim::Per::kBatch) scheduler->step();
  }
}

void SchedulerCallback::on_epoch_end(State& state) {
  for (const auto& [name, scheduler] : state.schedulers) {
    if (scheduler->per() != optim::Per::kEpoch) continue;
    if (scheduler->needs_metric()) {
      const auto value =
          metric_if_run(state, *metric(state, name), asked_by(state, {name, *scheduler}));
      if (value) scheduler->step(*value);
    } else {
      scheduler->step();
    }
  }
}

}  // namespace lockstep
