// Top-k accuracy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/metric/metric.h"
#include "lockstep/metric/moments.h"

namespace lockstep::metric {

struct AccuracyOptions {
  // Which k to report. Empty: 1. If num_classes is given, also 3 for more than 3 classes and 5 for
  // more than 5.
  std::vector<std::int64_t> topk = {};
  // The number of classes, if it is to be checked. Otherwise it is taken from the outputs of each
  // batch.
  std::optional<std::int64_t> num_classes = std::nullopt;
  // Put before and after "accuracy01" in the names.
  std::string prefix = "";
  std::string suffix = "";
};

// `accuracy01`, `accuracy03`, ...: the share of samples whose target is among the k classes with
// the highest scores. Of equal scores, the lower class comes first. A target whose score is NaN is
// never right, and a NaN of another class ranks above every number, as torch sorts it.
// `accuracy01/std`: the standard deviation of the batches' accuracies, computed as Additive does.
// Outputs [N] or [N, 1] are predictions, which are right for every k if they equal the target.
// All values are NaN if there is no sample.
class Accuracy final : public OutputMetric {
 public:
  explicit Accuracy(AccuracyOptions options);

  void update(const torch::Tensor& outputs, const torch::Tensor& targets) override;

  std::vector<std::string> names() const override;
  std::optional<Better> better(std::string_view name) const override;
  void reset() override;
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  void merge(const StateDict& other) override;

 private:
  // What was accumulated for one k.
  struct Tally {
    std::int64_t right = 0;
    Moments batches;  // of the batches' accuracies, weighted by their samples
  };

  std::vector<Tally> read(const StateDict& state) const;
  std::string name(std::int64_t k) const;

  AccuracyOptions options_;  // topk resolved
  std::vector<Tally> tallies_;
};

}  // namespace lockstep::metric
