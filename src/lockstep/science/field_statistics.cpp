#include "lockstep/science/field_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::science {
namespace {

// Of one channel.
struct ChannelStatistics {
  double count = 0;
  double mean = 0;
  double squares = 0;  // the sum of the squares of (x - mean)
  double smallest = std::numeric_limits<double>::infinity();
  double largest = -std::numeric_limits<double>::infinity();

  // Chan's formula. Sums of all values and of their squares would cancel if the mean is large.
  void merge(const ChannelStatistics& other) {
    const double total = count + other.count;
    const double difference = other.mean - mean;
    squares += other.squares + difference * difference * count * other.count / total;
    mean += difference * other.count / total;
    count = total;
    smallest = std::min(smallest, other.smallest);
    largest = std::max(largest, other.largest);
  }
};

// Plain loops: torch's sums depend on the number of threads.
ChannelStatistics statistics_of(std::span<const float> values, bool of_logarithm) {
  const auto seen = [of_logarithm](float value) {
    return of_logarithm ? std::log(static_cast<double>(value)) : static_cast<double>(value);
  };
  ChannelStatistics found;
  found.count = static_cast<double>(values.size());
  double sum = 0;
  for (const float value : values) {
    const double x = seen(value);
    sum += x;
    found.smallest = std::min(found.smallest, x);
    found.largest = std::max(found.largest, x);
  }
  found.mean = sum / found.count;
  for (const float value : values) {
    const double difference = seen(value) - found.mean;
    found.squares += difference * difference;
  }
  return found;
}

}  // namespace

data::ChannelScaling measure(const MeasuredFields& measured, data::Normalization kind) {
  if (kind == data::Normalization::kNone) return {};
  const bool of_logarithm = kind == data::Normalization::kLog;
  std::vector<ChannelStatistics> channels;
  for (const std::int64_t index : measured.samples) {
    const torch::Tensor sample =
        measured.fields.sample(index)[measured.key].to(torch::kFloat32).contiguous();
    if (channels.empty()) channels.resize(static_cast<std::size_t>(sample.size(0)));
    const auto points = static_cast<std::size_t>(sample.numel() / sample.size(0));
    for (std::size_t c = 0; c < channels.size(); ++c) {
      const std::span<const float> values(sample.data_ptr<float>() + c * points, points);
      const ChannelStatistics found = statistics_of(values, of_logarithm);
      // The logarithm of 0 is infinite, and of a value below 0 it is NaN.
      if (!std::isfinite(found.squares)) {
        throw DataError(
            "{}: '{}', channel {}: normalize = {} needs finite values{}, got others; choose "
            "another normalization or none",
            measured.fields.name_of(index), measured.key, c, data::name_of(kind),
            of_logarithm ? " above 0" : "");
      }
      channels[c].merge(found);
    }
  }
  data::ChannelScaling scaling{.kind = kind};
  for (const ChannelStatistics& channel : channels) {
    const bool is_minmax = kind == data::Normalization::kMinMax;
    const double scale =
        is_minmax ? channel.largest - channel.smallest : std::sqrt(channel.squares / channel.count);
    scaling.shift.push_back(is_minmax ? channel.smallest : channel.mean);
    // Not `scale > 0`: the mean of equal values is rounded, so their deviation may be above 0.
    scaling.scale.push_back(channel.smallest < channel.largest ? scale : 1.0);
  }
  return scaling;
}

}  // namespace lockstep::science
