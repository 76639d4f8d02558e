// The BLAS that LibTorch uses, without the way through LibTorch: a small product takes a
// microsecond or two, and as long again to get there.
#pragma once

#include <cstdint>

namespace lockstep::compute {

// The matrix product that LibTorch calls, by BLAS's name of it; null where LibTorch carries one of
// its own inside.
void* find_sgemm();

// Row-major; `stride` elements from one row to the next, as it lies in memory.
struct Matrix {
  const float* data = nullptr;
  std::int64_t rows = 0;  // of the factor, after it was transposed
  std::int64_t columns = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

struct Product {
  Matrix a;
  Matrix b;
  bool accumulate = false;  // added to what is there
};

// out[a.rows, b.columns] = a * b, its rows side by side.
void multiply(const Product& product, float* out);

}  // namespace lockstep::compute
