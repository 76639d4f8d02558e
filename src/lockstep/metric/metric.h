// A metric accumulates over a loader and is exact: counts and sums are kept, never means of means,
// so that what several ranks accumulated merges into what one process would have computed.
#pragma once

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

  // The names compute() will give, known before the first sample.
  virtual std::vector<std::string> names() const = 0;

  // Whether a smaller or a larger value of names()' `name` is the better one. Nothing: neither is,
  // or the metric does not say; whoever chooses by it then has to.
  virtual std::optional<Better> better(std::string_view /*name*/) const { return std::nullopt; }

  virtual void reset() = 0;

  // The value over all that was accumulated since reset(). Accumulating may go on afterwards.
  virtual Metrics compute() const = 0;

  // All that was accumulated, for a checkpoint inside an epoch and for merging.
  virtual StateDict state() const = 0;
  virtual void load_state(const StateDict& state) = 0;

  // Adds what another rank accumulated, as its state().
  virtual void merge(const StateDict& other) = 0;
};

// A metric of a model's outputs against the targets, one update a batch.
class ClassificationMetric : public Metric {
 public:
  // outputs: [N, classes] scores, or [N] predictions where the metric allows it; targets: [N].
  virtual void update(const torch::Tensor& outputs, const torch::Tensor& targets) = 0;
};

}  // namespace lockstep::metric
