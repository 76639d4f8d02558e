// Accuracy of samples that may be of several classes, and of binary problems.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/metric/class_maps.h"
#include "lockstep/metric/sample_means.h"

namespace lockstep::metric {

struct MultilabelAccuracyOptions {
  // The number of classes. Required; 1 for a binary problem.
  std::int64_t num_classes = 0;
  // What the outputs are.
  ScoreKind scores = ScoreKind::kLogits;
  // A class is predicted if its probability is above this.
  double threshold = 0.5;
  // Put before and after "accuracy" in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// `accuracy`: the share of all (sample, class) pairs that are right, as in Catalyst. `exact_match`,
// for several classes: the share of samples of which all classes are right, which is scikit-learn's
// accuracy_score. Each with `/std`, the standard deviation of the batches. NaN if there is no
// sample.
//
// Outputs are scores [N, C], for one class also [N]. Targets are 0 and 1 of the same shape.
class MultilabelAccuracy final : public SampleMeans {
 public:
  explicit MultilabelAccuracy(MultilabelAccuracyOptions options);

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

 private:
  MapFormat format_;
};

}  // namespace lockstep::metric
