// A progress bar for every pass over a loader; plain lines if there is no terminal.
#pragma once

#include <memory>

#include "lockstep/log/progress_bar.h"
#include "lockstep/train/callback.h"

namespace lockstep {

class ProgressBarCallback : public Callback {
 public:
  // `console` must outlive the callback.
  explicit ProgressBarCallback(Console& console = Console::standard()) : console_(&console) {}

  CallbackTraits traits() const override {
    return {.ranks = Ranks::kPrimary,
            .uses_gradients = false,
            .changes_batch = false,
            .metric_names = no_metrics()};
  }
  void on_loader_start(State& state) override;
  void on_step(State& state) override;
  void on_loader_end(State& state) override;
  void on_run_end(State& state) override;

 private:
  Console* console_;
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace lockstep
