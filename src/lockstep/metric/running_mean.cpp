#include "lockstep/metric/running_mean.h"

#include <cmath>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {

RunningMean::RunningMean(RunningMeanOptions options) : options_(std::move(options)) {
  if (options_.name.empty()) throw ConfigError("running mean: name: expected a name, got ''");
  if (options_.window < 1) {
    throw ConfigError("running mean: window: expected 1 batch or more, got {}", options_.window);
  }
}

void RunningMean::update(std::int64_t batch, const WeightedValue& weighted) {
  if (!(weighted.weight >= 0) || std::isinf(weighted.weight)) {
    throw DataError("running mean '{}': weight of a value: expected 0 or more, got {}",
                    options_.name, weighted.weight);
  }
  if (weighted.weight == 0) return;
  BatchSums& sums = batches_[batch];
  sums.values.add_product(weighted.weight, weighted.value);
  sums.weights.add(weighted.weight);
  forget_old();
}

// Batches that have no value count, too.
void RunningMean::forget_old() {
  if (batches_.empty()) return;
  const std::int64_t first = batches_.rbegin()->first - options_.window + 1;
  batches_.erase(batches_.begin(), batches_.lower_bound(first));
}

Metrics RunningMean::compute() const {
  BatchSums all;
  for (const auto& [batch, sums] : batches_) {
    all.values.merge(sums.values);
    all.weights.merge(sums.weights);
  }
  // 0 / 0 gives the NaN that is documented for no values
  return {{options_.name, all.values.value() / all.weights.value()}};
}

StateDict RunningMean::state() const {
  std::vector<std::int64_t> batches;
  std::vector<ExactSum> values, weights;
  for (const auto& [batch, sums] : batches_) {
    batches.push_back(batch);
    values.push_back(sums.values);
    weights.push_back(sums.weights);
  }
  const auto size = static_cast<std::int64_t>(batches.size());
  return {{"batches", tensor_of<std::int64_t>(batches, {size})},
          {"values", saved_sums(values)},
          {"weights", saved_sums(weights)}};
}

RunningMean::Batches RunningMean::read(const StateDict& state) {
  const auto saved = state.get<torch::Tensor>("batches");
  const std::int64_t size = saved.defined() ? saved.numel() : 0;
  const auto batches = saved_values<std::int64_t>(state, "batches", {size});
  const auto values = read_sums(state, "values", size);
  const auto weights = read_sums(state, "weights", size);
  Batches read;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    read[batches[i]] = {.values = values[i], .weights = weights[i]};
  }
  return read;
}

void RunningMean::load_state(const StateDict& state) {
  batches_ = read(state);
  forget_old();
}

void RunningMean::merge(const StateDict& other) {
  for (const auto& [batch, sums] : read(other)) {
    batches_[batch].values.merge(sums.values);
    batches_[batch].weights.merge(sums.weights);
  }
  forget_old();
}

}  // namespace lockstep::metric
