// Mean and standard deviation of weighted values, exact under merging.
#pragma once

#include <cstdint>

#include "lockstep/metric/exact_sum.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::metric {

class Moments {
 public:
  // A value that stands for `weight` samples; weight 0 adds nothing. Throws DataError below 0.
  void add(double value, std::int64_t weight);

  void merge(const Moments& other);

  std::int64_t weight() const { return weight_; }

  // Over the samples; NaN without any.
  double mean() const;

  // As Catalyst's: sqrt(sum of weight * (value - mean)^2 / (total weight - 1)), 0 for one sample
  // and exactly 0 for equal values; NaN without any.
  double std() const;

  StateDict state() const;
  // Throws CheckpointError where `state` is not one of state()'s.
  static Moments from_state(const StateDict& state);

 private:
  // The sum less what it would be if every value were `mean`.
  double beyond(double mean) const;

  std::int64_t weight_ = 0;
  ExactSum sum_;          // of weight * value
  ExactSum sum_squares_;  // of weight * value^2
};

}  // namespace lockstep::metric
