// All outputs and targets of a loader, for metrics that cannot be computed from parts.
#pragma once

#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/metric/metric.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::metric {

// The rows are in the order of the batches and their shards, so they do not depend on the number of
// workers. They are kept in memory, and state() contains them.
class LoaderRows {
 public:
  // Without begin(), each add() is the batch after the one before.
  void begin(const OutputMetric::Place& place) { next_ = place; }
  // Throws DataError unless both have the same number of rows.
  void add(const torch::Tensor& outputs, const torch::Tensor& targets);
  void reset();

  bool empty() const;  // there is no row
  // On the CPU. There must be a row.
  struct All {
    torch::Tensor outputs, targets;
  };
  All all() const;

  StateDict state() const;
  void load_state(const StateDict& state);
  void merge(const StateDict& other);

 private:
  struct Rows {
    OutputMetric::Place place;
    torch::Tensor outputs, targets;
  };

  static std::vector<Rows> read(const StateDict& state);

  std::vector<Rows> parts_;
  OutputMetric::Place next_;
};

}  // namespace lockstep::metric
