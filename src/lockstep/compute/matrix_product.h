// Calls LibTorch's BLAS directly. A small product takes one or two microseconds, and the way
// through LibTorch takes as long again.
#pragma once

#include <cstdint>

namespace lockstep::compute {

// The BLAS function for matrix products that LibTorch calls (sgemm); null if LibTorch has its BLAS
// linked in without a public name.
void* find_sgemm();

// Row-major, with `stride` elements from one row to the next in memory.
struct Matrix {
  const float* data = nullptr;
  std::int64_t rows = 0;  // of the factor, after transposing
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

struct Product {
  Matrix a;
  Matrix b;
  bool accumulate = false;  // adds to the values in `out`
};

// out[a.rows, b.columns] = a * b, with contiguous rows.
void multiply(const Product& product, float* out);

}  // namespace lockstep::compute
