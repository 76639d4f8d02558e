#include "lockstep/callback/progress_bar.h"

namespace lockstep {
namespace {

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

BarPosition ProgressBarCallback::position(const State& state) const {
  if (bars_ == ProgressBars::kPasses) {
    return {.batches = state.loader_batch, .samples = state.loader_samples};
  }
  // Inside an epoch, that epoch is not done.
  const std::int64_t done = state.progress.epoch - (state.inside_epoch ? 1 : 0);
  return {.batches = done,
          .samples = earlier_samples_ + state.loader_samples - first_sample_,
          .part = state.inside_epoch ? part_ : 0};
}

void ProgressBarCallback::on_run_start(State& state) {
  if (bars_ == ProgressBars::kPasses) return;
  earlier_samples_ = first_sample_ = 0;
  part_ = 0;
  shown_.clear();
  // Of a run that is resumed inside an epoch, progress.epoch is that of the last finished one.
  bar_ = std::make_unique<ProgressBar>(
      *console_, ProgressBarOptions{.num_batches = state.progress.num_epochs,
                                    .begin = {.batches = state.progress.epoch},
                                    .shows = ProgressBars::kRun});
}

void ProgressBarCallback::on_epoch_start(State&) {
  part_ = 0;
}

void ProgressBarCallback::on_loader_start(State& state) {
  if (bars_ == ProgressBars::kRun) {
    first_sample_ = state.loader_samples;
    return;
  }
  bar_ = std::make_unique<ProgressBar>(*console_,
                                       ProgressBarOptions{.epoch = state.progress.epoch,
                                                          .num_epochs = state.progress.num_epochs,
                                                          .loader = state.loader,
                                                          .num_batches = state.loader_batches,
                                                          .begin = position(state)});
}

void ProgressBarCallback::on_step(State& state) {
  if (state.is_train && state.loader_batches > 0) {
    part_ = static_cast<double>(state.loader_batch) / static_cast<double>(state.loader_batches);
  }
  if (bar_->due()) bar_->update(position(state), state.running_metrics());
}

void ProgressBarCallback::on_loader_end(State& state) {
  if (bar_ == nullptr) return;
  if (bars_ == ProgressBars::kRun) {
    shown_ = final_metrics(state);
    earlier_samples_ += state.loader_samples - first_sample_;
    first_sample_ = state.loader_samples;
    return;
  }
  bar_->finish(position(state), final_metrics(state));
  bar_.reset();
}

void ProgressBarCallback::on_epoch_end(State& state) {
  if (bars_ == ProgressBars::kRun && bar_ != nullptr) bar_->update(position(state), shown_);
}

// If an error ended the run, the bar is removed.
void ProgressBarCallback::on_run_end(State& state) {
  const bool is_shown = bars_ == ProgressBars::kRun && bar_ != nullptr;
  if (is_shown && state.exception == nullptr) bar_->finish(position(state), shown_);
  bar_.reset();
}

}  // namespace lockstep
