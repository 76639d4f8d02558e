// One metric from several, for example to choose the best epoch by two of them:
//
//   ls::MetricAggregationCallback({.metric_key = "score",
//                                  .weights = {{"accuracy01", 2}, {"auc", 1}},
//                                  .mode = ls::AggregationMode::kWeightedMean,
//                                  .scope = ls::MetricScope::kLoader})
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/callback.h"

namespace lockstep {

enum class AggregationMode { kSum, kMean, kWeightedSum, kWeightedMean };

enum class MetricScope {
  kBatch,   // metrics of batches: the loss, and those of handle_batch and on_forward
  kLoader,  // metrics of a pass over a loader
};

struct MetricAggregationCallbackOptions {
  std::string metric_key;                      // the name of the result; required
  std::vector<std::string> metrics = {};       // their names; with a weighted mode see `weights`
  std::map<std::string, double> weights = {};  // by name, for a weighted mode, instead of `metrics`
  AggregationMode mode = AggregationMode::kMean;
  // Instead of a mode. Gets the values in the order of `metrics`.
  std::function<double(std::span<const double> values)> function = {};
  MetricScope scope = MetricScope::kBatch;
  double multiplier = 1;  // of the result
};

// It sees the metrics of handle_batch, of built-in callbacks, and of other callbacks whose order is
// at most Order::kMetric.
//
// With kBatch, the result is a metric of every batch. The loader has its mean: for a mode this is
// exactly the same sum or mean of the loader's metrics; for a function it is the mean of the
// results, in which each sample counts the same.
class MetricAggregationCallback : public Callback {
 public:
  // Throws ConfigError for options that contradict each other.
  explicit MetricAggregationCallback(MetricAggregationCallbackOptions options);

  CallbackTraits traits() const override;
  std::string agreed_options() const override;
  void check(const State& state) const override;
  void on_forward(State& state) override;
  void on_loader_end(State& state) override;

 private:
  void check_weights() const;
  // The result. Nothing, and the name in `missing`, if one of the metrics is not there.
  std::optional<double> result(const Metrics& metrics, std::string& missing) const;
  [[noreturn]] void fail_without(const std::string& missing, const Metrics& metrics) const;

  MetricAggregationCallbackOptions options_;
  std::vector<std::pair<std::string, double>> terms_;  // names and weights
};

}  // namespace lockstep
