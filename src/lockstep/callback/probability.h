// Metrics of probabilities, over each loader: log loss, calibration error.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/callback/classification.h"
#include "lockstep/metric/scores.h"

namespace lockstep {

struct LogLossCallbackOptions {
  std::string input_key = "logits";                       // scores [N, C], or [N] of being 1
  std::string target_key = "targets";                     // labels [N]
  metric::ScoreKind scores = metric::ScoreKind::kLogits;  // the kind of the outputs
  std::string prefix = "";                                // before and after the metric's name
  std::string suffix = "";
};

// `log_loss` and `log_loss/std`.
class LogLossCallback : public MetricCallback {
 public:
  explicit LogLossCallback(LogLossCallbackOptions options = {});
};

struct CalibrationErrorCallbackOptions {
  std::string input_key = "logits";                       // scores [N, C], or [N] of being 1
  std::string target_key = "targets";                     // labels [N]
  std::int64_t bins = 15;                                 // intervals of equal width, from 0 to 1
  metric::ScoreKind scores = metric::ScoreKind::kLogits;  // the kind of the outputs
  std::string prefix = "";
  std::string suffix = "";
};

// `ece`, the expected calibration error, and `mce`, the largest one of a bin.
class CalibrationErrorCallback : public MetricCallback {
 public:
  explicit CalibrationErrorCallback(CalibrationErrorCallbackOptions options = {});
};

}  // namespace lockstep
