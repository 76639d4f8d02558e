// Metrics of predicted numbers, over each loader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/callback/classification.h"

namespace lockstep {

struct RegressionCallbackOptions {
  std::string input_key = "logits";    // the model's outputs, of the shape of the targets
  std::string target_key = "targets";  // the expected numbers
  // Which: mae, mse, rmse, r2, mape, explained_variance, pearson.
  std::vector<std::string> metrics = {"mae", "mse", "rmse", "r2"};
  std::int64_t num_outputs = 1;  // more: [N, num_outputs, …], and the mean over the outputs
  bool per_output = false;       // each output in addition to the mean
  std::string prefix = "";       // before and after the metrics' names
  std::string suffix = "";
};

// `mae`, `mse`, `rmse`, `r2`, … over all numbers of the loader.
class RegressionCallback : public MetricCallback {
 public:
  explicit RegressionCallback(RegressionCallbackOptions options = {});
};

}  // namespace lockstep
