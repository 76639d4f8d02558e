// Prints a line a loader and a line an epoch:
//
//   train (1/8) accuracy01: 0.812 | loss: 0.534
//   valid (1/8) accuracy01: 0.851 | loss: 0.472
//   * Epoch (1/8) lr: 0.020 | momentum: 0.900
#pragma once

#include "lockstep/log/console.h"
#include "lockstep/log/logger.h"

namespace lockstep {

class ConsoleLogger : public Logger {
 public:
  // `console` outlives the logger.
  explicit ConsoleLogger(Console& console = Console::standard()) : console_(console) {}

  // Batches are not printed, nor are deviations ("loss/std") and second names of means
  // ("loss/mean"): a line should fit a terminal. Files have them all.
  void log_metrics(const Record& record) override;

 private:
  Console& console_;
};

}  // namespace lockstep
