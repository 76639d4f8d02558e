// A metric from a function of a batch's outputs and targets.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/metric/sample_means.h"

namespace lockstep::metric {

struct BatchFunctionOptions {
  // Its name. Required.
  std::string name = "";
  // Returns one value per sample, [N] or [N, 1], or one number, which is a mean over the samples.
  // Required.
  std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>
      function = {};
  // Which of two values is better, if that is known.
  std::optional<Better> better = std::nullopt;
};

// `name`: the mean over all samples of the loader. `name/std`: the standard deviation of the
// batches' means. Both are NaN if there is no sample, or if the function returned NaN.
class BatchFunction final : public SampleMeans {
 public:
  explicit BatchFunction(BatchFunctionOptions options);

  // Throws DataError if the function returns a tensor of another shape.
  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

 private:
  BatchFunctionOptions options_;
};

}  // namespace lockstep::metric
