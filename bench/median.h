// The middle of a few measurements, and how far they lie apart.
#pragma once

#include <algorithm>
#include <vector>

namespace lockstep::bench {

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// As a share of the median.
inline double spread(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  return (high - low) / median(values);
}

}  // namespace lockstep::bench
