// The median of a few measurements, and their spread.
#pragma once

#include <algorithm>
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

}  // namespace lockstep::bench
