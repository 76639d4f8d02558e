#include "lockstep/data/weighted_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/data/draw_indices.h"

namespace lockstep::data {

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights,
                                             const WeightedRandomOptions& options)
    : weights_(std::move(weights)),
      options_(options),
      size_(options.samples.value_or(static_cast<std::int64_t>(weights_.size()))) {
  double total = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (!(weights_[i] >= 0) || !std::isfinite(weights_[i])) {
      throw ConfigError("WeightedRandomSampler: weights: expected 0 or more for sample {}, got {}",
                        i, weights_[i]);
    }
    total += weights_[i];
  }
  if (!(total > 0) || !std::isfinite(total)) {
    throw ConfigError(
        "WeightedRandomSampler: weights: expected numbers with a positive, finite sum, got {} with "
        "the sum {}",
        weights_.size(), total);
  }
  if (size_ < 1) {
    throw ConfigError("WeightedRandomSampler: samples: expected a positive integer, got {}", size_);
  }
  const auto possible = std::ranges::count_if(weights_, [](double weight) { return weight > 0; });
  if (!options.replacement && size_ > possible) {
    throw ConfigError(
        "WeightedRandomSampler: samples: without replacement expected at most the {} samples with "
        "a positive weight, got {}",
        possible, size_);
  }
}

std::vector<std::int64_t> WeightedRandomSampler::indices(std::int64_t epoch) const {
  return options_.replacement ? with_replacement(epoch) : without_replacement(epoch);
}

std::vector<std::int64_t> WeightedRandomSampler::with_replacement(std::int64_t epoch) const {
  // Only samples that can be drawn, so that rounding at the end of the sums cannot draw another.
  std::vector<std::int64_t> possible;
  std::vector<double> sums;
  double total = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] == 0) continue;
    total += weights_[i];
    possible.push_back(static_cast<std::int64_t>(i));
    sums.push_back(total);
  }
  SampleRandom random = order_random(options_.seed, epoch);
  std::vector<std::int64_t> order(static_cast<std::size_t>(size_));
  for (std::int64_t& index : order) {
    const auto above = std::ranges::upper_bound(sums, random.uniform() * total);
    const auto place = std::min<std::ptrdiff_t>(above - sums.begin(), std::ssize(sums) - 1);
    index = possible[static_cast<std::size_t>(place)];
  }
  return order;
}

// Each sample waits for an exponential time with its weight as the rate. Those that come first are
// drawn (Efraimidis and Spirakis, 2006).
std::vector<std::int64_t> WeightedRandomSampler::without_replacement(std::int64_t epoch) const {
  SampleRandom random = order_random(options_.seed, epoch);
  std::vector<std::pair<double, std::int64_t>> times;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const double time = -std::log(1 - random.uniform()) / weights_[i];
    if (weights_[i] > 0) times.emplace_back(time, static_cast<std::int64_t>(i));
  }
  std::ranges::partial_sort(times, times.begin() + size_);
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(size_));
  for (std::int64_t i = 0; i < size_; ++i) {
    order.push_back(times[static_cast<std::size_t>(i)].second);
  }
  return order;
}

std::string WeightedRandomSampler::settings() const {
  return OptionText()
      .with("samples", size_)
      .with("replacement", options_.replacement)
      .with("seed", options_.seed)
      .with("weights", fingerprint(weights_))
      .str();
}

std::vector<double> weights_by_class(const std::vector<std::int64_t>& labels,
                                     const std::vector<double>& class_weights) {
  std::vector<double> weights;
  weights.reserve(labels.size());
  for (const std::int64_t label : labels) {
    if (label < 0 || label >= std::ssize(class_weights)) {
      throw ConfigError(
          "class_weights: expected one for each class from 0 on, got {} of them, and a sample of "
          "class {}",
          class_weights.size(), label);
    }
    weights.push_back(class_weights[static_cast<std::size_t>(label)]);
  }
  return weights;
}

}  // namespace lockstep::data
