// Values that are NaN or infinite. One of them makes every weight NaN in the first step, so data
// sets look for them when they read a file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep::data {

struct NonFinite {
  std::int64_t count = 0;
  std::vector<std::int64_t> index;  // of the first one
  double value = 0;                 // the first one
};

// Nothing if all values are finite, or cannot be anything else because they are integers. Complex
// values are searched as pairs: their index has one more dimension.
std::optional<NonFinite> find_non_finite(const torch::Tensor& values);

// Throws DataError for the first of the rows [N, ...] that has a value that is NaN or infinite. It
// names `where` the rows come from, the row, which is `indices[k]` for rows[k], and how many of its
// values are not finite.
void require_finite(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                    const std::string& where);

}  // namespace lockstep::data
