// Small loops between matrix products, on contiguous rows.
#pragma once

#include <cstdint>

namespace lockstep::compute {

struct Rows {
  std::int64_t count = 0;
  std::int64_t width = 0;

  std::int64_t size() const { return count * width; }
};

// out[r] = row, for each r.
void repeat_row(const Rows& rows, const float* row, float* out);

// sums += rows[0] + rows[1] + ...
void add_rows(const Rows& rows, const float* values, float* sums);

// max(values, 0), in place; NaN stays NaN.
void relu(std::int64_t size, float* values);

// grad if the output of ReLU is positive, else 0.
struct ReluBackward {
  const float* grad;
  const float* output;
  float* masked;
};
void relu_backward(std::int64_t size, const ReluBackward& pass);

}  // namespace lockstep::compute
