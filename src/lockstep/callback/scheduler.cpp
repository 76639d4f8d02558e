#include "lockstep/callback/scheduler.h"

#include "lockstep/base/error.h"

namespace lockstep {

SchedulerCallback::SchedulerCallback(SchedulerCallbackOptions options)
    : options_(std::move(options)) {}

optim::Per SchedulerCallback::mode(const State& state) const {
  return options_.mode.value_or(state.scheduler->per());
}

void SchedulerCallback::on_run_start(State& state) {
  if (state.scheduler == nullptr) {
    throw ConfigError("SchedulerCallback: there is no scheduler; pass .scheduler or override "
                      "get_scheduler()");
  }
  if (!state.scheduler->needs_metric()) return;
  if (mode(state) == optim::Per::kBatch) {
    throw ConfigError("scheduler {}: needs a loader's metric, so it cannot step after each batch",
                      state.scheduler->name());
  }
  if (!options_.metric) options_.metric = state.selection.key;
  if (!options_.metric) {
    throw ConfigError("scheduler {}: needs a metric; set valid_loader and valid_metric, or pass a "
                      "SchedulerCallback with one",
                      state.scheduler->name());
  }
  check_metric_key(state, *options_.metric, "scheduler " + state.scheduler->name());
}

// Only where the model was updated: with gradient accumulation not every batch does.
void SchedulerCallback::on_batch_end(State& state) {
  if (!state.is_train || !state.can_snapshot || mode(state) != optim::Per::kBatch) return;
  state.scheduler->step();
}

void SchedulerCallback::on_epoch_end(State& state) {
  if (mode(state) != optim::Per::kEpoch) return;
  if (state.scheduler->needs_metric()) {
    state.scheduler->step(
        metric_value(state, *options_.metric, "scheduler " + state.scheduler->name()));
  } else {
    state.scheduler->step();
  }
}

}  // namespace lockstep
