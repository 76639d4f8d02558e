#include "lockstep/runner/handlers.h"

#include "lockstep/base/error.h"
#include "lockstep/runner/runner.h"

namespace lockstep {

// Metrics that a handler adds are among the runner's metric_names().
CallbackTraits RunnerHandlers::traits() const {
  return {.order = is_start() ? Order::kRunner : Order::kExternal,
          .uses_gradients = is_start() && runner_.overrides_on_backward(),
          .changes_batch = false,
          .metric_names = no_metrics()};
}

void RunnerHandlers::on_run_start(State& state) {
  if (is_start()) runner_.on_run_start(state);
}
void RunnerHandlers::on_epoch_start(State& state) {
  if (is_start()) runner_.on_epoch_start(state);
}
void RunnerHandlers::on_loader_start(State& state) {
  if (is_start()) runner_.on_loader_start(state);
}
void RunnerHandlers::on_batch_start(State& state) {
  if (is_start()) batch_start_.call(state, [&] { runner_.on_batch_start(state); });
}
void RunnerHandlers::on_outputs(State& state) {
  if (is_start()) outputs_.call(state, [&] { runner_.on_outputs(state); });
}
void RunnerHandlers::on_forward(State& state) {
  if (is_start()) forward_.call(state, [&] { runner_.on_forward(state); });
}

// An override that reads gradients would find old ones, or none, if the run does not know of it.
void RunnerHandlers::on_backward(State& state) {
  if (!is_start()) return;
  runner_.default_backward_ = false;
  backward_.call(state, [&] { runner_.on_backward(state); });
  if (runner_.default_backward_ || runner_.overrides_on_backward()) return;
  throw ConfigError(
      "the runner overrides on_backward, and its overrides_on_backward() is false, so gradients "
      "may not be where it reads them; override overrides_on_backward(), too, and return true");
}

void RunnerHandlers::on_batch_end(State& state) {
  if (!is_start()) batch_end_.call(state, [&] { runner_.on_batch_end(state); });
}
void RunnerHandlers::on_step(State& state) {
  if (!is_start()) step_.call(state, [&] { runner_.on_step(state); });
}
void RunnerHandlers::on_loader_end(State& state) {
  if (!is_start()) runner_.on_loader_end(state);
}
void RunnerHandlers::on_epoch_end(State& state) {
  if (!is_start()) runner_.on_epoch_end(state);
}
void RunnerHandlers::on_checkpoint(State& state) {
  if (!is_start()) runner_.on_checkpoint(state);
}
void RunnerHandlers::on_run_end(State& state) {
  if (!is_start()) runner_.on_run_end(state);
}
void RunnerHandlers::on_exception(State& state) {
  if (!is_start()) runner_.on_exception(state);
}

void add_handlers(Callbacks& callbacks, Runner& runner) {
  callbacks.add(RunnerHandlers(runner, RunnerHandlers::Half::kStart));
  callbacks.add(RunnerHandlers(runner, RunnerHandlers::Half::kEnd));
}

}  // namespace lockstep
