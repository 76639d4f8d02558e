#include "lockstep/train/selection.h"

namespace lockstep {

std::string describe(const std::optional<MetricKey>& key) {
  return key ? key->loader + "/" + key->metric : "default";
}

std::optional<double> find_metric(const EpochMetrics& metrics, const MetricKey& key) {
  const auto loader = metrics.find(key.loader);
  if (loader == metrics.end()) return std::nullopt;
  const auto value = loader->second.find(key.metric);
  return value == loader->second.end() ? std::nullopt : std::optional(value->second);
}

std::optional<double> Selection::score(std::int64_t epoch, const EpochMetrics& metrics) const {
  return key ? find_metric(metrics, *key) : std::optional(static_cast<double>(epoch));
}

}  // namespace lockstep
