#include "lockstep/callback/scheduler.h"

#include "lockstep/base/error.h"

namespace lockstep {

SchedulerCallback::SchedulerCallback(SchedulerCallbackOptions options)
    : options_(std::move(options)) {}

const std::optional<MetricKey>& SchedulerCallback::metric(const State& state) const {
  return options_.metric ? options_.metric : state.selection.key;
}

void SchedulerCallback::check(const State& state) const {
  if (state.scheduler == nullptr) {
    throw ConfigError(
        "SchedulerCallback: there is no scheduler; pass .scheduler or override "
        "get_scheduler()");
  }
  if (!state.scheduler->will_need_metric()) return;
  const std::string asked_by = "scheduler " + state.scheduler->name();
  if (state.scheduler->needs_metric() && state.scheduler->per() == optim::Per::kBatch) {
    throw ConfigError("{}: needs a loader's metric, so it cannot step after each batch", asked_by);
  }
  if (!metric(state)) {
    throw ConfigError(
        "{}: needs a metric; set valid_loader and valid_metric, or pass a "
        "SchedulerCallback with one",
        asked_by);
  }
  check_metric_key(state, *metric(state), asked_by);
  if (state.scheduler->needs_direction()) selection_in(state);
}

Selection SchedulerCallback::selection_in(const State& state) const {
  const std::string asked_by = "scheduler " + state.scheduler->name();
  return selection_for(state,
                       {.metric = options_.metric, .minimize = std::nullopt, .asked_by = asked_by});
}

void SchedulerCallback::on_run_start(State& state) {
  if (!state.scheduler->needs_direction()) return;
  state.scheduler->set_minimize(selection_in(state).minimize);
}

// Steps only if the model was updated: with gradient accumulation, not every batch does it.
void SchedulerCallback::on_step(State& state) {
  if (!state.is_train || !state.can_snapshot || state.scheduler->per() != optim::Per::kBatch)
    return;
  state.scheduler->step();
}

void SchedulerCallback::on_epoch_end(State& state) {
  if (state.scheduler->per() != optim::Per::kEpoch) return;
  if (state.scheduler->needs_metric()) {
    if (!has_run(state, *metric(state))) return;  // a step without the metric would mean nothing
    state.scheduler->step(
        metric_value(state, *metric(state), "scheduler " + state.scheduler->name()));
  } else {
    state.scheduler->step();
  }
}

}  // namespace lockstep
