// A metric accumulates over a loader and is exact: it keeps counts and sums, never means of means.
// So merging what several ranks accumulated gives what one process would have computed.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "lockstep/base/metrics.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::metric {

class Metric {
 public:
  virtual ~Metric() = default;

  // The names that compute() will return, known before the first sample.
  virtual std::vector<std::string> names() const = 0;

  // Whether a smaller or a larger value of the metric `name` (one of names()) is better. Nothing:
  // neither is better, or the metric does not know. Then the user has to say it to choose by this
  // metric.
  virtual std::optional<Better> better(std::string_view /*name*/) const { return std::nullopt; }

  virtual void reset() = 0;

  // The values over everything that was accumulated since reset(). Accumulating may continue
  // afterwards.
  virtual Metrics compute() const = 0;

  // Everything that was accumulated, for a checkpoint inside an epoch and for merging.
  virtual StateDict state() const = 0;
  virtual void load_state(const StateDict& state) = 0;

  // Adds what another rank accumulated; `other` is its state().
  virtual void merge(const StateDict& other) = 0;
};

// A metric of a model's outputs against the targets, updated once per shard of a batch.
class OutputMetric : public Metric {
 public:
  // The place of a shard in a pass over a loader. It is the same for any number of workers.
  struct Place {
    std::int64_t batch = 0;
    std::int64_t shard = 0;
    friend auto operator<=>(const Place&, const Place&) = default;
  };

  // Called before each update() of a run. Only metrics whose result depends on the order of the
  // samples need it.
  virtual void begin(const Place&) {}

  // outputs and targets have one row per sample; the metric says which shapes it takes. Throws
  // DataError, and counts nothing of the batch, for outputs or targets that do not fit.
  virtual void update(const torch::Tensor& outputs, const torch::Tensor& targets) = 0;
};

// Its name in version 0.1.0.
using ClassificationMetric = OutputMetric;

}  // namespace lockstep::metric
