// The distribution of many numbers, in the buckets of TensorBoard.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace lockstep {

// The numbers of tensorboard's HistogramProto.
struct Histogram {
  double min = 0;
  double max = 0;
  double num = 0;  // of values
  double sum = 0;
  double sum_squares = 0;
  // bucket_limits[i] is the upper limit of bucket i, and the lower limit of the next one.
  std::vector<double> bucket_limits = {};
  std::vector<double> buckets = {};  // the number of values in each

  bool operator==(const Histogram&) const = default;
};

// The same buckets as add_histogram of torch.utils.tensorboard: their limits grow by a factor
// of 1.1 from 1e-12 to 1e20, on both sides of 0. Values that are not finite are left out, and those
// beyond 1e20 are in no bucket. Nothing if no value is left.
std::optional<Histogram> make_histogram(std::span<const float> values);
std::optional<Histogram> make_histogram(std::span<const double> values);

}  // namespace lockstep
