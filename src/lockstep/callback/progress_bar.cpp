#include "lockstep/callback/progress_bar.h"

namespace lockstep {
namespace {

BarPosition position(const State& state) {
  return {.batches = state.loader_batch, .samples = state.loader_samples};
}

// The final values of the metrics that the bar has shown. Callbacks have put them into
// loader_metrics, merged over all workers, and have reset their own.
Metrics final_metrics(const State& state) {
  Metrics shown;
  for (const auto& [name, unused] : state.running_metrics()) {
    const auto value = state.loader_metrics.find(name);
    if (value != state.loader_metrics.end()) shown.insert(*value);
  }
  return shown;
}

}  // namespace

void ProgressBarCallback::on_loader_start(State& state) {
  bar_ = std::make_unique<ProgressBar>(*console_,
                                       ProgressBarOptions{.epoch = state.progress.epoch,
                                                          .num_epochs = state.progress.num_epochs,
                                                          .loader = state.loader,
                                                          .num_batches = state.loader_batches,
                                                          .begin = position(state)});
}

void ProgressBarCallback::on_step(State& state) {
  if (bar_->due()) bar_->update(position(state), state.running_metrics());
}

void ProgressBarCallback::on_loader_end(State& state) {
  if (bar_ == nullptr) return;
  bar_->finish(position(state), final_metrics(state));
  bar_.reset();
}

// If an error ended the pass, the bar is removed.
void ProgressBarCallback::on_run_end(State&) {
  bar_.reset();
}

}  // namespace lockstep
