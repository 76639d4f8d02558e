// Stochastic weight averaging: the mean of several checkpoints' weights.
#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// The mean of each floating-point weight, summed in double. Integers are counters, such as batch
// norm's number of batches; they are taken from the last checkpoint.
class WeightAverage {
 public:
  // Throws CheckpointError, naming `file` and the weight, if the weights are not of the first one's
  // model.
  void add(const StateDict& weights, const std::filesystem::path& file);
  std::int64_t count() const { return count_; }
  // Throws ConfigError if there is nothing to average.
  StateDict mean() const;

 private:
  void check(const StateDict& weights, const std::filesystem::path& file) const;

  std::int64_t count_ = 0;
  StateDict last_;
  StateDict sums_;
};

}  // namespace lockstep::checkpoint
