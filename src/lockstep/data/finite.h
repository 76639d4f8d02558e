// Values that are NaN or infinite. One of them makes every weight NaN in the first step, so data
// sets look for them when they read a file.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/types.h>

namespace lockstep::data {

struct NonFinite {
  std::int64_t count = 0;
  std::vector<std::int64_t> index;  // of the first one
  double value = 0;                 // the first one
};

// Nothing if all values are finite, or cannot be anything else because they are integers.
std::optional<NonFinite> find_non_finite(const torch::Tensor& values);

}  // namespace lockstep::data
