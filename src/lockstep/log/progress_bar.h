// Shows how far one pass over a loader, or a whole run, is. On a terminal it is one line that is
// redrawn in place:
//
//   1/8 * Epoch (train):  45% |████▌     | 844/1875 [00:03<00:04, 8,123 samples/s] loss=0.534
//
// Elsewhere it prints a plain line from time to time:
//
//   1/8 * Epoch (train): 844/1875 batches, 8,123 samples/s, 4.2 s left, loss=0.534
//
// The bar of a run counts epochs:
//
//   Run:  31% |███▏      | 2/8 epochs [00:10<00:22, 8,123 samples/s] loss=0.534
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/base/metrics.h"
#include "lockstep/base/warn.h"
#include "lockstep/log/console.h"

namespace lockstep {

enum class ProgressBars {
  kPasses,  // a bar for each pass over a loader, which counts batches
  kRun,     // one for the whole run, which counts epochs
};

struct BarPosition {
  std::int64_t batches = 0;  // or epochs
  std::int64_t samples = 0;
  double part = 0;  // of the next batch or epoch that is done, from 0 to 1
};

struct ProgressBarOptions {
  std::int64_t epoch = 1;
  std::int64_t num_epochs = 1;
  std::string loader = {};
  std::int64_t num_batches = 0;  // in the whole pass; or epochs in the whole run
  BarPosition begin = {};        // where the pass begins; not zero after a resume inside the pass
  std::function<std::chrono::steady_clock::time_point()> clock = std::chrono::steady_clock::now;
  ProgressBars shows = ProgressBars::kPasses;  // one bar for each pass, or one for the run
};

// The bar is drawn at most ten times a second. Plain lines are printed at most every ten seconds,
// the first after ten seconds. While the bar is shown, warnings are printed above it.
class ProgressBar {
 public:
  // `console` must outlive the bar.
  ProgressBar(Console& console, ProgressBarOptions options);
  // Removes the bar if finish() was not called.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Whether update() would draw, for callers that must compute `metrics`. It only reads the clock.
  bool due() const { return options_.clock() >= next_; }

  // `position` counts what is done. If nothing is due, this only reads the clock, too.
  void update(const BarPosition& position, const Metrics& metrics) {
    if (due()) draw(position, metrics);
  }

  // The pass is over: the bar's last state stays on the terminal as a line.
  void finish(const BarPosition& position, const Metrics& metrics);

 private:
  void draw(const BarPosition& position, const Metrics& metrics);
  std::string title() const;
  std::string bar_line(const BarPosition& position, const Metrics& metrics) const;
  std::string plain_line(const BarPosition& position, const Metrics& metrics) const;
  void release();

  Console& console_;
  ProgressBarOptions options_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_;  // when the next draw is due
  WarningHandler other_warnings_;               // the handler that this replaces while it is shown
  bool shown_ = false;
};

}  // namespace lockstep
