// Finds values that are NaN or infinite before a model sees them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <torch/types.h>

namespace lockstep::data {

// Throws DataError for the first of the rows [N, ...] that has a value that is NaN or infinite. It
// names `where` the rows come from, the row, which is `indices[k]` for rows[k], and how many of its
// values are not finite. Integers are always finite.
void require_finite(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                    const std::string& where);

}  // namespace lockstep::data
