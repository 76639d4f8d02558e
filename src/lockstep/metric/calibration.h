// Whether probabilities are as high as the share of predictions that are right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/metric/exact_sum.h"
#include "lockstep/metric/metric.h"
#include "lockstep/metric/scores.h"

namespace lockstep::metric {

struct CalibrationErrorOptions {
  // The number of intervals of equal width into which the probabilities from 0 to 1 are divided.
  std::int64_t bins = 15;
  // What the outputs are.
  ScoreKind scores = ScoreKind::kLogits;
  // Put before and after "ece" and "mce" in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// `ece`, the expected calibration error: the mean over the bins, weighted by their samples, of
// |share that is right - mean probability|. `mce`: the largest of these. NaN if there is no sample.
// A probability on the border of two bins belongs to the upper one, and 1 belongs to the last bin.
// They are torchmetrics' norms l1 and max if no probability is on a border: there its versions
// differ, and newer ones have a further bin for probabilities of exactly 1.
//
// Outputs are scores [N, C] with labels [N]: the probability is that of the predicted class. Or one
// score of being 1 per sample, [N] or [N, 1], with targets 0 and 1: the probability is that of
// being 1, and the share that of 1s.
class CalibrationError final : public OutputMetric {
 public:
  explicit CalibrationError(CalibrationErrorOptions options = {});

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view) const override { return Better::kSmaller; }
  void reset() override;
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override { bins_ = read(state); }
  void merge(const StateDict& other) override;

 private:
  struct Bin {
    std::int64_t samples = 0;
    std::int64_t right = 0;
    ExactSum probability;
  };

  std::vector<Bin> read(const StateDict& state) const;
  std::string name(const char* metric) const;

  CalibrationErrorOptions options_;
  std::vector<Bin> bins_;
};

}  // namespace lockstep::metric
