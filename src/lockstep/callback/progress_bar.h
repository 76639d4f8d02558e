// A progress bar for every pass over a loader; plain lines if there is no terminal.
#pragma once

#include <memory>

#include "lockstep/log/progress_bar.h"
#include "lockstep/train/callback.h"

namespace lockstep {

class ProgressBarCallback : public Callback {
 public:
  bool uses_gradients() const override { return false; }
  // `console` must outlive the callback.
  explicit ProgressBarCallback(Console& console = Console::standard()) : console_(&console) {}

  Order order() const override { return Order::kExternal; }
  Ranks ranks() const override { return Ranks::kPrimary; }
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>();
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
