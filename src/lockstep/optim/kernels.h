// Fused optimizer updates over raw arrays: one pass reads the gradient, updates state and weights,
// and clears the gradient. The operations are element-wise, without fused multiply-adds, so a
// result depends neither on how a range is split nor on the instruction set that is chosen at run
// time.
//
// This file does not include torch: it is compiled with its own floating-point options.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/optim/update.h"

namespace lockstep::optim::kernels {

template <typename T>
struct Arrays {
  T* values = nullptr;
  T* grads = nullptr;
  std::array<T*, 3> state{};  // in the order in which the update names them; null if unused
  // One number in the memory of the arrays, by which LambUpdate multiplies its step size; null: 1.
  const double* factor = nullptr;
};

struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// For float and double, and for every update in LOCKSTEP_FOR_EACH_UPDATE.
template <typename T, typename Update>
void apply(const Update& update, const Arrays<T>& arrays, IndexRange range);

// values += weight (others - values)
void blend(float* values, const float* others, double weight, IndexRange range);
void blend(double* values, const double* others, double weight, IndexRange range);

// Over at most kSumBlock elements, summed in double in an order that depends only on their number.
LambSquares lamb_squares(const LambUpdate& update, const Arrays<float>& arrays, IndexRange range);
LambSquares lamb_squares(const LambUpdate& update, const Arrays<double>& arrays, IndexRange range);

// Sums in double, in an order that depends only on `size`. Longer arrays are summed block by block.
inline constexpr std::int64_t kSumBlock = 4096;
double sum_of_squares(const float* data, std::int64_t size);
double sum_of_squares(const double* data, std::int64_t size);

}  // namespace lockstep::optim::kernels
