// Options that several transforms have. Internal to transform/.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/transform/layout.h"

namespace lockstep::data {

// {height, width}, or {length} of a square; sides are in [1, 2^31 - 1]. Throws ConfigError, which
// names `owner`, otherwise.
ImageSize read_size(std::string_view owner, const std::vector<std::int64_t>& size);

struct Range {
  double low = 0;
  double high = 0;
};

// {low, high} with low <= high and both finite. Throws ConfigError otherwise.
Range read_range(std::string_view owner, std::string_view field, const std::vector<double>& values);

// The same, or {distance}, which is {middle - distance, middle + distance}.
Range read_range_around(std::string_view owner, std::string_view field,
                        const std::vector<double>& values, double middle);

// The value of each channel, of which `values` has one for all or one per channel. Throws DataError
// otherwise.
std::vector<double> per_channel(std::string_view owner, const std::vector<double>& values,
                                std::int64_t channels);

// Throws ConfigError, which names `owner`, if it is not in [0, 1].
void check_probability(std::string_view owner, double probability);

}  // namespace lockstep::data
