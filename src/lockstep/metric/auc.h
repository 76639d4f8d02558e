// Area under the ROC curve, one class against the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/metric/metric.h"

namespace lockstep::metric {

struct AUCOptions {
  // The number of columns of the outputs, 1 for binary scores [N]. Default: from the first batch.
  std::optional<std::int64_t> num_classes = std::nullopt;
  // Whether to report each class in addition to the averages; needs num_classes.
  bool per_class = false;
  // Put before and after "auc" in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// `auc` and `auc/_macro`: the mean over the classes; `auc/_weighted`: weighted by their positives;
// `auc/_micro`: all (sample, class) pairs as one class; with per_class also `auc/class_00`, ...
// Ties count half, as in scikit-learn's roc_auc_score. A class without positives or without
// negatives has no AUC: its value is NaN, and macro and weighted leave it out. They are NaN if no
// class has one.
//
// Outputs are scores [N, C]. Targets are labels [N] or, for several labels per sample, 0 and 1 as
// [N, C]. Binary: scores [N] or [N, 1] of being 1, targets 0 and 1. Scores are kept as float32,
// with one byte for the target, over the whole loader: 5 bytes per sample and class.
class AUC final : public OutputMetric {
 public:
  explicit AUC(AUCOptions options);

  // Throws DataError for a NaN score.
  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view) const override { return Better::kLarger; }
  void reset() override;
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  void merge(const StateDict& other) override;

 private:
  // All samples of the loader so far.
  struct ScoredSamples {
    std::optional<std::int64_t> classes;  // unknown before the first batch, unless it was given
    std::vector<float> scores;
    std::vector<std::uint8_t> positive;  // 1 if the sample is of the class
  };

  // Throws CheckpointError if the state has another number of classes than `expected`.
  static ScoredSamples read(const StateDict& state, std::optional<std::int64_t> expected);
  std::string name(const std::string& tail = "") const;

  AUCOptions options_;
  ScoredSamples samples_;
};

}  // namespace lockstep::metric
