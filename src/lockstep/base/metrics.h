// Named numbers that the loop, its callbacks and the loggers pass to each other.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace lockstep {

// One loader's metrics (or one batch's), sorted by name, as they are printed.
using Metrics = std::map<std::string, double, std::less<>>;

// An epoch's metrics by loader; "_epoch_" holds what belongs to no loader (learning rate,
// momentum).
using EpochMetrics = std::map<std::string, Metrics, std::less<>>;

// Which of two values of a metric is the better one.
enum class Better { kSmaller, kLarger };

// Whether `score` is better than another one. NaN is never better, and nothing is better than NaN.
inline bool is_better(double score, double than, Better which) {
  return which == Better::kSmaller ? score < than : score > than;
}

inline constexpr const char* kEpochKey = "_epoch_";

}  // namespace lockstep
