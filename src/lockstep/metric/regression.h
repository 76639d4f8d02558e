// Metrics of predicted numbers: MAE, MSE, RMSE, R², MAPE, explained variance, Pearson's
// correlation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/metric/joint_moments.h"
#include "lockstep/metric/metric.h"

namespace lockstep::metric {

struct RegressionOptions {
  // Which metrics: mae, mse, rmse, r2, mape, explained_variance, pearson.
  std::vector<std::string> metrics = {"mae", "mse", "rmse", "r2"};
  // 1: all numbers are of one kind. More: outputs are [N, num_outputs, …], each metric is computed
  // for each output alone, and reported is the mean of these, as scikit-learn's uniform average.
  std::int64_t num_outputs = 1;
  // Whether to report each output in addition to the mean.
  bool per_output = false;
  // Put before and after "mae" and so on in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// `mae`, `mse`, ... over all numbers of the loader; with per_output also `mae/output_00`, ...
//
//   mae, mse, rmse      the mean absolute error, the mean squared error, and its square root
//   mape                the mean of |error| / |target|, as a fraction
//   r2                  1 - squared error / variation of the targets
//   explained_variance  the same without the mean of the errors
//   pearson             the linear correlation; NaN if all outputs or all targets are equal
//
// All are scikit-learn's (pearson is SciPy's). In mape, a target of 0 counts as 2.2e-16. If all
// targets are equal, r2 and explained_variance are 1 without errors and 0 with errors. r2 of fewer
// than two numbers is NaN, and so is every metric if there is no number, or if one is NaN.
//
// Outputs and targets have the same shape; [N] and [N, 1] fit together.
class Regression final : public OutputMetric {
 public:
  explicit Regression(RegressionOptions options = {});

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view name) const override;
  void reset() override;
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override { outputs_ = read(state); }
  void merge(const StateDict& other) override;

 private:
  std::vector<JointMoments> read(const StateDict& state) const;
  std::string name(const std::string& metric) const;
  std::string output_name(const std::string& metric, std::size_t output) const;

  RegressionOptions options_;
  std::vector<JointMoments> outputs_;
};

}  // namespace lockstep::metric
