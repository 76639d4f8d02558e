// How epochs are compared: by which metric, and which of two values is the better one. The best
// epoch, the checkpoints that are kept, early stopping and plateaus use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/metrics.h"

namespace lockstep {

// A loader's metric on which a decision is based.
struct MetricKey {
  std::string loader;
  std::string metric = "loss";

  friend bool operator==(const MetricKey&, const MetricKey&) = default;
};

// "valid/loss"; "default" for nothing.
std::string describe(const std::optional<MetricKey>& key);

// The metric's value; nothing if the epoch does not have it.
std::optional<double> find_metric(const EpochMetrics& metrics, const MetricKey& key);

struct Selection {
  std::optional<MetricKey> key;  // none: the newest epoch is the best
  bool minimize = true;          // a smaller value is better

  // The number by which an epoch is compared: its metric, or without a key the epoch itself.
  // Nothing if the epoch does not have the metric.
  std::optional<double> score(std::int64_t epoch, const EpochMetrics& metrics) const;
  Better better() const { return key && minimize ? Better::kSmaller : Better::kLarger; }
  bool is_better(double score, double than) const {
    return lockstep::is_better(score, than, better());
  }
};

}  // namespace lockstep
