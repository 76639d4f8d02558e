#include "lockstep/compute/elementwise.h"

#include <algorithm>

#include "lockstep/base/vectorize.h"

namespace lockstep::compute {
namespace {

struct AddRowsLoop {
  const float* values;
  float* sums;

  LOCKSTEP_ALWAYS_INLINE void operator()(const Rows& rows) const {
    float* __restrict const to = sums;
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const float* __restrict const row = values + r * rows.width;
      for (std::int64_t i = 0; i < rows.width; ++i) to[i] += row[i];
    }
  }
};

struct ReluLoop {
  float* values;

  LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t size) const {
    for (std::int64_t i = 0; i < size; ++i) values[i] = values[i] < 0.0F ? 0.0F : values[i];
  }
};

struct ReluBackwardLoop {
  const ReluBackward& pass;

  LOCKSTEP_ALWAYS_INLINE void operator()(std::int64_t size) const {
    const float* __restrict const grad = pass.grad;
    const float* __restrict const output = pass.output;
    float* __restrict const masked = pass.masked;
    for (std::int64_t i = 0; i < size; ++i) masked[i] = output[i] <= 0.0F ? 0.0F : grad[i];
  }
};

}  // namespace

void repeat_row(const Rows& rows, const float* row, float* out) {
  for (std::int64_t r = 0; r < rows.count; ++r) std::copy_n(row, rows.width, out + r * rows.width);
}

void add_rows(const Rows& rows, const float* values, float* sums) {
  run_best(AddRowsLoop{values, sums}, rows);
}

void relu(std::int64_t size, float* values) {
  run_best(ReluLoop{values}, size);
}

void relu_backward(std::int64_t size, const ReluBackward& pass) {
  run_best(ReluBackwardLoop{pass}, size);
}

}  // namespace lockstep::compute
