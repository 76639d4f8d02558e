// How values are distributed, and how large the distance between two distributions is.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace lockstep::science {

struct Histogram {
  std::vector<double> edge;     // of the bins: one more than there are bins
  std::vector<double> density;  // numpy.histogram(…, density=True): its integral is 1
};

struct Range {
  double first = 0;
  double last = 0;
};

// The values that are finite numbers, in ascending order, in double. The functions below use only
// these, because NaN and infinite values have no place in a distribution. Throws DataError if no
// value is finite.
torch::Tensor finite_values(const torch::Tensor& values);

// The smallest range that contains the finite values of both.
Range range_of(const torch::Tensor& a, const torch::Tensor& b);

Histogram histogram(const torch::Tensor& values, const Range& range, std::int64_t bins = 100);

struct Cdf {
  std::vector<double> value;     // ascending
  std::vector<double> fraction;  // of the values that are at most this
};

// At most `points` points of the empirical distribution function, evenly spread over the sorted
// values. There are fewer if values repeat.
Cdf cumulative(const torch::Tensor& values, std::int64_t points = 1000);

// The largest distance between two empirical distribution functions: scipy.stats.ks_2samp.
double ks_statistic(const torch::Tensor& a, const torch::Tensor& b);

}  // namespace lockstep::science
