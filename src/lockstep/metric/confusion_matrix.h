// Which class is predicted as which.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/metric/metric.h"

namespace lockstep::metric {

struct ConfusionMatrixOptions {
  // The number of classes. Required.
  std::int64_t num_classes = 0;
  // Whether values() returns shares of each true class instead of counts.
  bool normalized = false;
};

// Rows are the true classes, columns the predicted ones. The result is a matrix, not a number:
// names() and compute() are empty.
class ConfusionMatrix final : public OutputMetric {
 public:
  explicit ConfusionMatrix(ConfusionMatrixOptions options);

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

  // int64 [num_classes, num_classes].
  torch::Tensor counts() const;

  // float64 [num_classes, num_classes]: the counts, or with `normalized` each divided by its row's
  // sum; a row without samples stays 0.
  torch::Tensor values() const;

  std::vector<std::string> names() const override { return {}; }
  void reset() override;
  Metrics compute() const override { return {}; }
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  void merge(const StateDict& other) override;

 private:
  ConfusionMatrixOptions options_;
  std::vector<std::int64_t> counts_;  // row by row
};

}  // namespace lockstep::metric
