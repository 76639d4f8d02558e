#include "lockstep/metric/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/metric/predictions.h"
#include "lockstep/metric/saved_tensor.h"

namespace lockstep::metric {

CalibrationError::CalibrationError(CalibrationErrorOptions options) : options_(std::move(options)) {
  if (options_.bins < 1) {
    throw ConfigError("calibration error: bins: expected 1 or more, got {}", options_.bins);
  }
  reset();
}

void CalibrationError::reset() {
  bins_.assign(static_cast<std::size_t>(options_.bins), {});
}

void CalibrationError::update(const torch::Tensor& outputs, const torch::Tensor& targets) {
  const ClassProbabilities read =
      class_probabilities(outputs, targets, options_.scores, "calibration error");
  const bool is_binary = is_one_a_sample(outputs);
  const auto classes = static_cast<std::size_t>(read.values.size(1));
  const double* row = read.values.data_ptr<double>();
  for (const std::int64_t label : elements<std::int64_t>(read.labels)) {
    const std::span<const double> values(row, classes);
    const std::int64_t chosen = is_binary ? 1 : std::ranges::max_element(values) - values.begin();
    const double probability = values[static_cast<std::size_t>(chosen)];
    const double place = std::floor(probability * static_cast<double>(options_.bins));
    const auto last = static_cast<double>(options_.bins - 1);
    Bin& bin = bins_[static_cast<std::size_t>(std::min(place, last))];
    ++bin.samples;
    bin.right += chosen == label;
    bin.probability.add(probability);
    row += classes;
  }
}

std::string CalibrationError::name(const char* metric) const {
  return options_.prefix + metric + options_.suffix;
}

std::vector<std::string> CalibrationError::names() const {
  return {name("ece"), name("mce")};
}

Metrics CalibrationError::compute() const {
  double sum = 0, largest = 0, samples = 0;
  for (const Bin& bin : bins_) {
    if (bin.samples == 0) continue;
    // |right - sum of probabilities| is |share - mean| times the samples.
    ExactSum difference = bin.probability;
    difference.add(-static_cast<double>(bin.right));
    const double gap = std::abs(difference.value());
    sum += gap;
    largest = std::max(largest, gap / static_cast<double>(bin.samples));
    samples += static_cast<double>(bin.samples);
  }
  const double none = std::nan("");
  return {{name("ece"), samples == 0 ? none : sum / samples},
          {name("mce"), samples == 0 ? none : largest}};
}

StateDict CalibrationError::state() const {
  std::vector<std::int64_t> counts;
  std::vector<ExactSum> sums;
  for (const Bin& bin : bins_) {
    counts.insert(counts.end(), {bin.samples, bin.right});
    sums.push_back(bin.probability);
  }
  return {{"counts", tensor_of<std::int64_t>(counts, {options_.bins, 2})},
          {"probability", saved_sums(sums)}};
}

std::vector<CalibrationError::Bin> CalibrationError::read(const StateDict& state) const {
  const auto counts = saved_values<std::int64_t>(state, "counts", {options_.bins, 2});
  const auto sums = read_sums(state, "probability", options_.bins);
  std::vector<Bin> bins;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    bins.push_back({.samples = counts[2 * i], .right = counts[2 * i + 1], .probability = sums[i]});
  }
  return bins;
}

void CalibrationError::merge(const StateDict& other) {
  const std::vector<Bin> theirs = read(other);
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    bins_[i].samples += theirs[i].samples;
    bins_[i].right += theirs[i].right;
    bins_[i].probability.merge(theirs[i].probability);
  }
}

}  // namespace lockstep::metric
