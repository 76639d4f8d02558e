// How far one pass over a loader is. On a terminal, one line in place:
//
//   1/8 * Epoch (train):  45% |████▌     | 844/1875 [00:03<00:04, 8,123 samples/s] loss=0.534
//
// elsewhere, a plain line now and then:
//
//   1/8 * Epoch (train): 844/1875 batches, 8,123 samples/s, 4.2 s left, loss=0.534
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/base/metrics.h"
#include "lockstep/base/warn.h"
#include "lockstep/log/console.h"

namespace lockstep {

struct BarPosition {
  std::int64_t batches = 0;
  std::int64_t samples = 0;
};

struct ProgressBarOptions {
  std::int64_t epoch = 1;
  std::int64_t num_epochs = 1;
  std::string loader = {};
  std::int64_t num_batches = 0;  // in the whole pass
  BarPosition begin = {};        // where the pass begins; not at zero after a resume inside it
  std::function<std::chrono::steady_clock::time_point()> clock = std::chrono::steady_clock::now;
};

// Drawn at most ten times a second; a plain line at most every ten seconds, the first after ten.
// While it is shown, warnings are printed above it.
class ProgressBar {
 public:
  // `console` outlives the bar.
  ProgressBar(Console& console, ProgressBarOptions options);
  // Takes the bar away if finish() was not reached.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Whether update() would draw: for callers to whom `metrics` cost something. A look at the clock.
  bool due() const { return options_.clock() >= next_; }

  // `position` counts what is done. When nothing is due this is a look at the clock, too.
  void update(const BarPosition& position, const Metrics& metrics) {
    if (due()) draw(position, metrics);
  }

  // The pass is over: the bar's last state stays on the terminal as a line.
  void finish(const BarPosition& position, const Metrics& metrics);

 private:
  void draw(const BarPosition& position, const Metrics& metrics);
  std::string bar_line(const BarPosition& position, const Metrics& metrics) const;
  std::string plain_line(const BarPosition& position, const Metrics& metrics) const;
  void release();

  Console& console_;
  ProgressBarOptions options_;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_;  // when the next draw is due
  WarningHandler other_warnings_;               // whose place this takes while it is shown
  bool shown_ = false;
};

}  // namespace lockstep
