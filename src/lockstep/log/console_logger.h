// Prints one short line per loader, and one per epoch:
//
//   train (1/8) loss: 0.534 | accuracy01: 0.812 | auc: 0.967
//   valid (1/8) loss: 0.472 | accuracy01: 0.851 | auc: 0.971
//   * Epoch (1/8) lr: 0.020 | momentum: 0.900
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/log/console.h"
#include "lockstep/log/logger.h"

namespace lockstep {

struct ConsoleLoggerOptions {
  // The metrics that a line begins with, in this order, where a loader has them.
  std::vector<std::string> first = {"loss"};
};

// A line has the main metrics. Files have all of them; the console leaves out
//   - batches,
//   - deviations ("loss/std"), averages and single classes ("precision/_macro", "auc/class_03"),
//   but
//     for the macro average of F1, which has no plain name,
//   - accuracies of k > 1 ("accuracy03"),
//   - the learning rate and momentum of a loader: the epoch's line has them.
// A metric of the user's own is shown where its name has no "/".
class ConsoleLogger : public Logger {
 public:
  // `console` outlives the logger.
  explicit ConsoleLogger(Console& console = Console::standard(), ConsoleLoggerOptions options = {})
      : console_(console), options_(std::move(options)) {}

  void log_metrics(const Record& record) override;

 private:
  std::vector<std::string_view> shown(const Record& record) const;

  Console& console_;
  ConsoleLoggerOptions options_;
  std::size_t loader_width_ = 5;  // of the longest name so far, so that lines are aligned
};

}  // namespace lockstep
