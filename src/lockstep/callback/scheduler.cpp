#include "lockstep/callback/scheduler.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"

namespace lockstep {

SchedulerCallback::SchedulerCallback(SchedulerCallbackOptions options)
    : options_(std::move(options)) {}

std::string SchedulerCallback::agreed_options() const {
  return OptionText().with("metric", describe(options_.metric)).str();
}

const std::optional<MetricKey>& SchedulerCallback::metric(const State& state) const {
  return options_.metric ? options_.metric : state.selection.key;
}

void SchedulerCallback::check(const State& state) const {
  if (state.schedulers.empty()) {
    throw ConfigError(
        "SchedulerCallback: there is no scheduler; pass .scheduler or override "
        "get_scheduler()");
  }
  for (const auto& [name, scheduler] : state.schedulers) check(state, *scheduler);
}

void SchedulerCallback::check(const State& state, const optim::Scheduler& scheduler) const {
  if (!scheduler.will_need_metric()) return;
  const std::string asked_by = "scheduler " + scheduler.name();
  if (scheduler.needs_metric() && scheduler.per() == optim::Per::kBatch) {
    throw ConfigError("{}: needs a loader's metric, so it cannot step after each batch", asked_by);
  }
  if (!metric(state)) {
    throw ConfigError(
        "{}: needs a metric; set valid_loader and valid_metric, or pass a "
        "SchedulerCallback with one",
        asked_by);
  }
  check_metric_key(state, *metric(state), asked_by);
  if (scheduler.needs_direction()) selection_in(state, scheduler);
}

Selection SchedulerCallback::selection_in(const State& state,
                                          const optim::Scheduler& scheduler) const {
  const std::string asked_by = "scheduler " + scheduler.name();
  return selection_for(state,
                       {.metric = options_.metric, .minimize = std::nullopt, .asked_by = asked_by});
}

void SchedulerCallback::on_run_start(State& state) {
  for (const auto& [name, scheduler] : state.schedulers) {
    if (scheduler->needs_direction()) {
      scheduler->set_minimize(selection_in(state, *scheduler).minimize);
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
      const auto value = metric_if_run(state, *metric(state), "scheduler " + scheduler->name());
      if (value) scheduler->step(*value);
    } else {
      scheduler->step();
    }
  }
}

}  // namespace lockstep
