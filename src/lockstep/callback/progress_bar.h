// A progress bar for every pass over a loader, or one for the run; plain lines if there is no
// terminal.
#pragma once

#include <memory>

#include "lockstep/log/progress_bar.h"
#include "lockstep/train/callback.h"

namespace lockstep {

class ProgressBarCallback : public Callback {
 public:
  // `console` must outlive the callback.
  explicit ProgressBarCallback(Console& console = Console::standard(),
                               ProgressBars bars = ProgressBars::kPasses)
      : console_(&console), bars_(bars) {}

  ProgressBars bars() const { return bars_; }

  CallbackTraits traits() const override {
    return {.ranks = Ranks::kPrimary,
            .uses_gradients = false,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  void on_run_start(State& state) override;
  void on_epoch_start(State& state) override;
  void on_loader_start(State& state) override;
  void on_step(State& state) override;
  void on_loader_end(State& state) override;
  void on_epoch_end(State& state) override;
  void on_run_end(State& state) override;

 private:
  BarPosition position(const State& state) const;

  Console* console_;
  ProgressBars bars_;
  // Of the bar of a run: the samples of earlier passes, where the current pass began, and the part
  // of the epoch that is done, which is that of its train loader.
  std::int64_t earlier_samples_ = 0;
  std::int64_t first_sample_ = 0;
  double part_ = 0;
  Metrics shown_;  // the last metrics
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace lockstep
