// Prints one short line per loader, and one per epoch:
//
//   train (1/8) loss: 0.534 | accuracy01: 0.812 | auc: 0.967
//   valid (1/8) loss: 0.472 | accuracy01: 0.851 | auc: 0.971
//   * Epoch (1/8) lr: 0.020 | momentum: 0.900
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/log/console.h"
#include "lockstep/log/logger.h"

namespace lockstep {

struct ConsoleLoggerOptions {
  // The metrics that a line begins with, in this order, if the loader has them.
  std::vector<std::string> first = {"loss"};
};

// The line of a loader has its main metrics (main_metrics.h). The line of an epoch has all metrics
// of the epoch. Batches are not printed.
class ConsoleLogger : public Logger {
 public:
  // `console` must outlive the logger.
  explicit ConsoleLogger(Console& console = Console::standard(), ConsoleLoggerOptions options = {})
      : console_(console), options_(std::move(options)) {}

  void log_metrics(const Record& record) override;

 private:
  Console& console_;
  ConsoleLoggerOptions options_;
  std::size_t loader_width_ = 5;  // of the longest name so far, so that lines are aligned
};

}  // namespace lockstep
