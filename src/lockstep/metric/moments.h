// Mean and standard deviation of weighted values, exact under merging.
#pragma once

#include <cstdint>

#include "lockstep/metric/exact_sum.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::metric {

// A value and its weight.
struct WeightedValue {
  double value = 0;
  double weight = 1;         // what the value is a mean over: samples, class weights, tokens
  std::int64_t samples = 1;  // from which it was computed
};

class Moments {
 public:
  // Adds a value that is a mean over `samples`; 0 samples add nothing. Throws DataError below 0.
  void add(double value, std::int64_t samples);

  // Adds a value that is a mean over something else. A weight of 0 adds nothing. Throws DataError
  // if the weight is below 0 or not finite.
  void add(const WeightedValue& weighted);

  void merge(const Moments& other);

  std::int64_t samples() const { return samples_; }

  // The sum of weight * value, divided by the sum of the weights; NaN if there is no value.
  double mean() const;

  // As in Catalyst: sqrt(sum of weight * (value - mean)^2 / total weight * samples / (samples -
  // 1)). 0 for one sample and exactly 0 for equal values; NaN if there is no value.
  double std() const;

  StateDict state() const;
  // Throws CheckpointError if `state` is not a result of state().
  static Moments from_state(const StateDict& state);

 private:
  // The sum minus what it would be if every value were `mean`.
  double beyond(double mean) const;

  std::int64_t samples_ = 0;
  ExactSum weights_;
  ExactSum sum_;          // of weight * value
  ExactSum sum_squares_;  // of weight * value^2
};

}  // namespace lockstep::metric
