// The mean of a number over the last batches of a pass.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lockstep/metric/exact_sum.h"
#include "lockstep/metric/metric.h"
#include "lockstep/metric/moments.h"

namespace lockstep::metric {

struct RunningMeanOptions {
  // Its name. Required.
  std::string name = "";
  // How many batches it is a mean over.
  std::int64_t window = 50;
};

// `name`: the mean over the last `window` global batches, in which each shard counts with its
// weight. Ranks have different shards of the same batches, and what they accumulated is merged
// batch by batch. NaN if there is no value.
class RunningMean final : public Metric {
 public:
  explicit RunningMean(RunningMeanOptions options);

  // Batches count up; each may have several values, one per shard.
  void update(std::int64_t batch, const WeightedValue& weighted);

  std::vector<std::string> names() const override { return {options_.name}; }
  void reset() override { batches_.clear(); }
  Metrics compute() const override;
  StateDict state() const override;
  void load_state(const StateDict& state) override;
  void merge(const StateDict& other) override;

 private:
  struct BatchSums {
    ExactSum values;  // weight * value
    ExactSum weights;
  };
  using Batches = std::map<std::int64_t, BatchSums>;

  static Batches read(const StateDict& state);
  void forget_old();

  RunningMeanOptions options_;
  Batches batches_;
};

}  // namespace lockstep::metric
