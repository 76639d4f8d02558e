#include "lockstep/transform/options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"

namespace lockstep::data {

ImageSize read_size(std::string_view owner, const std::vector<std::int64_t>& size) {
  constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();
  const bool allowed =
      std::ranges::all_of(size, [](std::int64_t side) { return side > 0 && side <= kLongest; });
  if ((size.size() != 1 && size.size() != 2) || !allowed) {
    throw ConfigError(
        "{}: size: expected {{height, width}} or {{length}}, all positive "
        "and at most {}, got {}",
        owner, kLongest, size);
  }
  return {.height = size.front(), .width = size.back()};
}

Range read_range(std::string_view owner, std::string_view field,
                 const std::vector<double>& values) {
  if (values.size() != 2 || !std::isfinite(values[0]) || !std::isfinite(values[1]) ||
      values[0] > values[1]) {
    throw ConfigError("{}: {}: expected {{lowest, highest}}, got {}", owner, field, values);
  }
  return {.low = values[0], .high = values[1]};
}

Range read_range_around(std::string_view owner, std::string_view field,
                        const std::vector<double>& values, double middle) {
  if (values.size() != 1) return read_range(owner, field, values);
  Check(std::string(owner)).not_negative(field, values[0]);
  return {.low = middle - values[0], .high = middle + values[0]};
}

std::vector<double> per_channel(std::string_view owner, const std::vector<double>& values,
                                std::int64_t channels) {
  if (values.size() == 1) {
    return std::vector<double>(static_cast<std::size_t>(channels), values[0]);
  }
  if (static_cast<std::int64_t>(values.size()) != channels) {
    throw DataError("{}: expected one value for all channels or one for each of {}, got {}", owner,
                    channels, values);
  }
  return values;
}

void check_probability(std::string_view owner, double probability) {
  Check(std::string(owner)).fraction("probability", probability);
}

}  // namespace lockstep::data
