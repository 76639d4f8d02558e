// The mean negative logarithm of the probability of the true class.
#pragma once

#include <string>

#include "lockstep/metric/sample_means.h"
#include "lockstep/metric/scores.h"

namespace lockstep::metric {

struct LogLossOptions {
  // What the outputs are.
  ScoreKind scores = ScoreKind::kLogits;
  // Put before and after "log_loss" in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// `log_loss` and `log_loss/std`, the standard deviation of the batches. Computed in float64.
// Probabilities are taken as they are, and a 0 as 2.2e-16, as in scikit-learn. NaN if there is no
// sample.
//
// Outputs are scores [N, C] with labels [N], or one score of being 1 per sample, [N] or [N, 1],
// with targets 0 and 1.
class LogLoss final : public SampleMeans {
 public:
  explicit LogLoss(LogLossOptions options = {});

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

 private:
  ScoreKind kind_;
};

}  // namespace lockstep::metric
