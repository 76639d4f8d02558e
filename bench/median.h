// The median of measurements, and how sure it is.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace lockstep::bench {

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The difference of the largest and the smallest value, as a share of the median.
inline double spread(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  return (high - low) / median(values);
}

struct Interval {
  double low = 0;
  double high = 0;
};

// An interval that contains the true median with a probability of 95 %, whatever the distribution
// of the measurements is: the number of values below the median is binomial.
inline Interval median_interval(std::vector<double> values) {
  std::ranges::sort(values);
  const auto size = static_cast<double>(values.size());
  const double below = std::floor(size / 2 - 0.98 * std::sqrt(size));
  const auto first = static_cast<std::size_t>(std::max(0.0, below));
  return {.low = values[first], .high = values[values.size() - 1 - first]};
}

}  // namespace lockstep::bench
