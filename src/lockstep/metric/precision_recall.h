// Precision, recall and F1 of the classes, and their averages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/metric/class_counts.h"
#include "lockstep/metric/class_maps.h"

namespace lockstep::metric {

struct PrecisionRecallF1SupportOptions {
  // The number of classes. Required.
  std::int64_t num_classes = 0;
  // The value of a ratio whose denominator is 0; must be 0 or 1.
  double zero_division = 0;
  // Whether to report each class, and its number of samples, in addition to the averages.
  bool per_class = false;
  // Put before and after "precision", "recall", "f1" and "support" in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// What the metrics of this file share: the names and the ratios. Derived classes count.
class PrecisionRecallRatios : public CountedMetric {
 public:
  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view name) const override;
  Metrics compute() const override;

 protected:
  enum class Averages { kAll, kNone };  // none: there is one class, and its names have no tail
  PrecisionRecallRatios(PrecisionRecallF1SupportOptions options, Averages averages);

  const PrecisionRecallF1SupportOptions& options() const { return options_; }

 private:
  struct Scores {
    double precision, recall, f1;
  };

  Scores score(const ClassCount& count) const;
  std::string name(const char* metric, const std::string& average) const;

  PrecisionRecallF1SupportOptions options_;
  Averages averages_;
};

// `precision/_micro`, `precision/_macro`, `precision/_weighted`, the same for `recall` and `f1`;
// with per_class also `precision/class_00`, ... and `support/class_00`, ...
//
// Micro counts over all classes, macro is the mean over all num_classes, weighted is the mean
// weighted by the samples of each class. All are scikit-learn's precision_recall_fscore_support
// over labels=range(num_classes). Catalyst's F1 adds 1e-5 to the denominator and is that much
// lower; ours is 2 tp / (2 tp + fp + fn). If there is no sample, every ratio is zero_division.
class PrecisionRecallF1Support final : public PrecisionRecallRatios {
 public:
  explicit PrecisionRecallF1Support(PrecisionRecallF1SupportOptions options);

  // outputs: scores [N, C], or predictions [N]; targets: labels [N].
  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;
};

struct MultilabelPrecisionRecallF1SupportOptions {
  // The number of classes. Required; 1 for a binary problem.
  std::int64_t num_classes = 0;
  // What the outputs are.
  ScoreKind scores = ScoreKind::kLogits;
  // A class is predicted if its probability is above this.
  double threshold = 0.5;
  // As in PrecisionRecallF1SupportOptions.
  double zero_division = 0;
  bool per_class = false;
  std::string prefix = "";
  std::string suffix = "";
};

// The same for samples that may be of several classes, or of none: scikit-learn's with
// multi-label indicators. With one class, the names are `precision`, `recall`, `f1`, and with
// per_class `support`: scikit-learn's average="binary".
class MultilabelPrecisionRecallF1Support final : public PrecisionRecallRatios {
 public:
  explicit MultilabelPrecisionRecallF1Support(MultilabelPrecisionRecallF1SupportOptions options);

  // outputs: scores [N, C], for one class also [N]; targets: 0 and 1 of the same shape.
  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

 private:
  MapFormat format_;
};

}  // namespace lockstep::metric
