#include "lockstep/callback/progress_bar.h"

namespace lockstep {
namespace {

BarPosition position(const State& state) {
  return {.batches = state.loader_batch, .samples = state.loader_samples};
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
  bar_->finish(position(state), state.running_metrics());
  bar_.reset();
}

// Where the pass was cut short by an error, the bar goes.
void ProgressBarCallback::on_run_end(State&) {
  bar_.reset();
}

}  // namespace lockstep
