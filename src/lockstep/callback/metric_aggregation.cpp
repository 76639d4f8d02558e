#include "lockstep/callback/metric_aggregation.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

constexpr const char* kName = "MetricAggregationCallback";

bool has_weights(AggregationMode mode) {
  return mode == AggregationMode::kWeightedSum || mode == AggregationMode::kWeightedMean;
}

// The metrics of the current shard, and its loss as it is shown. With phases, the loss of the batch
// is known only after all of them.
Metrics metrics_of_batch(const State& state) {
  Metrics metrics = state.batch_metrics;
  if (!state.phase.empty() || !state.batch.contains(state.loss_key)) return metrics;
  const torch::Tensor& loss = state.batch[state.loss_key];
  if (loss.numel() != 1) return metrics;
  const bool is_sum = state.loss_over().kind == LossOver::Kind::kSum;
  metrics[state.loss_key] =
      loss.item<double>() / (is_sum ? static_cast<double>(state.batch.size()) : 1.0);
  return metrics;
}

// What a metric of the current shard is a mean over.
LossOver over_of(const State& state, const std::string& name) {
  if (name == state.loss_key) {
    const LossOver over = state.loss_over();
    return over.kind == LossOver::Kind::kWeight ? over : mean_over_samples();
  }
  const auto said = state.said.metrics.find(name);
  return said == state.said.metrics.end() ? mean_over_samples() : said->second;
}

}  // namespace

MetricAggregationCallback::MetricAggregationCallback(MetricAggregationCallbackOptions options)
    : options_(std::move(options)) {
  if (options_.metric_key.empty()) {
    throw ConfigError("{}: metric_key: expected the name of the result, got none", kName);
  }
  check_weights();
  for (const auto& name : options_.metrics) terms_.emplace_back(name, 1.0);
  for (const auto& [name, weight] : options_.weights) terms_.emplace_back(name, weight);
  if (terms_.empty()) throw ConfigError("{}: metrics: expected at least one name", kName);
  for (const auto& [name, weight] : terms_) {
    if (name != options_.metric_key) continue;
    throw ConfigError("{}: metric_key: '{}' is one of the metrics, expected another name", kName,
                      name);
  }
}

void MetricAggregationCallback::check_weights() const {
  const bool weighted = !options_.function && has_weights(options_.mode);
  if (weighted && !options_.metrics.empty()) {
    throw ConfigError("{}: metrics: a weighted mode takes weights instead: {{{}: 1.0, …}}", kName,
                      options_.metrics.front());
  }
  if (!weighted && !options_.weights.empty()) {
    throw ConfigError(
        "{}: weights: expected metrics instead, because the mode is not weighted_sum or "
        "weighted_mean",
        kName);
  }
  if (options_.function && options_.mode != MetricAggregationCallbackOptions{}.mode) {
    throw ConfigError("{}: function: expected a function or a mode, got both", kName);
  }
  double total = 0;
  for (const auto& [name, weight] : options_.weights) {
    total += weight;
    if (std::isfinite(weight)) continue;
    throw ConfigError("{}: weights: '{}': expected a finite number, got {}", kName, name, weight);
  }
  if (options_.mode == AggregationMode::kWeightedMean && !options_.weights.empty() && total == 0) {
    throw ConfigError("{}: weights: their sum is 0, so there is no mean", kName);
  }
}

// Not earlier, because the metrics of other callbacks come first.
CallbackTraits MetricAggregationCallback::traits() const {
  std::vector<std::string> names = {options_.metric_key};
  if (options_.scope == MetricScope::kBatch) names.push_back(options_.metric_key + "/std");
  return {.order = Order::kMetricAggregation,
          .uses_gradients = false,
          .changes_batch = false,
          .metric_names = names};
}

std::string MetricAggregationCallback::agreed_options() const {
  return OptionText()
      .with("metric_key", options_.metric_key)
      .with("metrics", options_.metrics)
      .with("weights", options_.weights)
      .with("mode", static_cast<int>(options_.mode))
      .with("function", options_.function != nullptr)
      .with("scope", static_cast<int>(options_.scope))
      .with("multiplier", options_.multiplier)
      .str();
}

void MetricAggregationCallback::check(const State& state) const {
  if (options_.metric_key == state.loss_key) {
    throw ConfigError(
        "{}: metric_key: '{}' is the loss that is trained, and a metric has no gradient; for "
        "several losses use .losses of SupervisedRunner, or CriterionCallback with a weight",
        kName, options_.metric_key);
  }
  const std::string any_loader = state.loaders.names().front();
  for (const auto& [name, weight] : terms_) check_metric_key(state, {any_loader, name}, kName);
}

std::optional<double> MetricAggregationCallback::result(const Metrics& metrics,
                                                        std::string& missing) const {
  std::vector<double> values;
  double sum = 0;
  double weights = 0;
  for (const auto& [name, weight] : terms_) {
    const auto found = metrics.find(name);
    if (found == metrics.end()) {
      missing = name;
      return std::nullopt;
    }
    values.push_back(found->second);
    sum += weight * found->second;
    weights += weight;
  }
  if (options_.function) return options_.function(values) * options_.multiplier;
  const bool is_mean =
      options_.mode == AggregationMode::kMean || options_.mode == AggregationMode::kWeightedMean;
  return (is_mean ? sum / weights : sum) * options_.multiplier;
}

void MetricAggregationCallback::fail_without(const std::string& missing,
                                             const Metrics& metrics) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  throw ConfigError("{}: {} '{}'; {}", kName,
                    options_.scope == MetricScope::kBatch
                        ? "after the forward pass of a batch there is no metric"
                        : "the loader has no metric",
                    missing, suggest(missing, names));
}

void MetricAggregationCallback::on_forward(State& state) {
  if (options_.scope != MetricScope::kBatch) return;
  const Metrics metrics = metrics_of_batch(state);
  std::string missing;
  const auto value = result(metrics, missing);
  if (!value) {
    if (state.phase.empty()) fail_without(missing, metrics);
    return;  // a later phase may compute it
  }
  const LossOver first = over_of(state, terms_.front().first);
  const bool is_common = std::ranges::all_of(
      terms_, [&](const auto& term) { return over_of(state, term.first) == first; });
  state.set_metric(options_.metric_key, *value, is_common ? first : mean_over_samples());
}

// For a sum or a mean, the metrics of the loader give its exact value, also if batches differ in
// what they are means over.
void MetricAggregationCallback::on_loader_end(State& state) {
  const bool of_batches = options_.scope == MetricScope::kBatch;
  const bool has_mean = state.loader_metrics.contains(options_.metric_key);
  if (of_batches && options_.function && has_mean) return;
  std::string missing;
  const auto value = result(state.loader_metrics, missing);
  if (value) {
    state.loader_metrics[options_.metric_key] = *value;
  } else if (!of_batches || !has_mean) {
    fail_without(missing, state.loader_metrics);
  }
}

}  // namespace lockstep
