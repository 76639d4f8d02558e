// Accuracy, precision, recall and F1 of binary problems, and of samples that may be of several
// classes, over each loader.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/callback/classification.h"
#include "lockstep/metric/scores.h"

namespace lockstep {

struct BinaryAccuracyCallbackOptions {
  std::string input_key = "logits";                       // scores of being 1, [N] or [N, 1]
  std::string target_key = "targets";                     // 0 and 1, [N] or [N, 1]
  metric::ScoreKind scores = metric::ScoreKind::kLogits;  // the kind of the outputs
  double threshold = 0.5;                                 // 1 if the probability is above this
  std::string prefix = "";                                // before and after the metric's name
  std::string suffix = "";
};

// `accuracy` and `accuracy/std`.
class BinaryAccuracyCallback : public MetricCallback {
 public:
  explicit BinaryAccuracyCallback(BinaryAccuracyCallbackOptions options = {});
  Metrics running_metrics() const override { return values_so_far(); }
};

struct MultilabelAccuracyCallbackOptions {
  std::string input_key = "logits";                       // scores [N, C]
  std::string target_key = "targets";                     // 0 and 1, [N, C]
  std::int64_t num_classes = 0;                           // required
  metric::ScoreKind scores = metric::ScoreKind::kLogits;  // the kind of the outputs
  double threshold = 0.5;  // a class is predicted if its probability is above this
  std::string prefix = "";
  std::string suffix = "";
};

// `accuracy`, of all (sample, class) pairs, and `exact_match`, of samples; each with `/std`.
class MultilabelAccuracyCallback : public MetricCallback {
 public:
  explicit MultilabelAccuracyCallback(MultilabelAccuracyCallbackOptions options);
  Metrics running_metrics() const override { return values_so_far(); }
};

struct BinaryPrecisionRecallF1SupportCallbackOptions {
  std::string input_key = "logits";                       // scores of being 1, [N] or [N, 1]
  std::string target_key = "targets";                     // 0 and 1, [N] or [N, 1]
  metric::ScoreKind scores = metric::ScoreKind::kLogits;  // the kind of the outputs
  double threshold = 0.5;                                 // 1 if the probability is above this
  double zero_division = 0;                               // the value of a ratio 0 / 0
  std::string prefix = "";
  std::string suffix = "";
};

// `precision`, `recall` and `f1` of being 1.
class BinaryPrecisionRecallF1SupportCallback : public MetricCallback {
 public:
  explicit BinaryPrecisionRecallF1SupportCallback(
      BinaryPrecisionRecallF1SupportCallbackOptions options = {});
};

struct MultilabelPrecisionRecallF1SupportCallbackOptions {
  std::string input_key = "logits";                       // scores [N, C]
  std::string target_key = "targets";                     // 0 and 1, [N, C]
  std::int64_t num_classes = 0;                           // required
  metric::ScoreKind scores = metric::ScoreKind::kLogits;  // the kind of the outputs
  double threshold = 0.5;    // a class is predicted if its probability is above this
  double zero_division = 0;  // the value of a ratio 0 / 0
  bool per_class = false;    // each class, and its support, in addition to the averages
  std::string prefix = "";
  std::string suffix = "";
};

// `precision/_micro`, `/_macro`, `/_weighted`, and the same of `recall` and `f1`.
class MultilabelPrecisionRecallF1SupportCallback : public MetricCallback {
 public:
  explicit MultilabelPrecisionRecallF1SupportCallback(
      MultilabelPrecisionRecallF1SupportCallbackOptions options);
};

}  // namespace lockstep
