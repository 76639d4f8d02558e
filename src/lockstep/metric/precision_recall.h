// Precision, recall and F1 of the classes, and their averages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/metric/metric.h"

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

// `precision/_micro`, `precision/_macro`, `precision/_weighted`, the same for `recall` and `f1`;
// with per_class also `precision/class_00`, ... and `support/class_00`, ...
//
// Micro counts over all classes, macro is the mean over all num_classes, weighted is the mean
// weighted by the samples of each class. All are scikit-learn's precision_recall_fscore_support
// over labels=range(num_classes). Catalyst's F1 adds 1e-5 to the denominator and is that much
// lower; ours is 2 tp / (2 tp + fp + fn). If there is no sample, every ratio is zero_division.
class PrecisionRecallF1Support final : public ClassificationMetric {
 public:
  explicit PrecisionRecallF1Support(PrecisionRecallF1SupportOptions options);

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view name) const override;
  void reset() override;
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  void merge(const StateDict& other) override;

 private:
  // The numbers of samples of one class.
  struct Counts {
    std::int64_t right = 0;      // of the class and predicted as it
    std::int64_t predicted = 0;  // predicted as it
    std::int64_t support = 0;    // of the class
  };
  struct Scores {
    double precision, recall, f1;
  };

  Scores score(const Counts& counts) const;
  std::vector<Counts> read(const StateDict& state) const;
  std::string name(const char* metric, const std::string& average) const;

  PrecisionRecallF1SupportOptions options_;
  std::vector<Counts> classes_;
};

}  // namespace lockstep::metric
