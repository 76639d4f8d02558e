// Fused optimizer updates over raw arrays: one pass reads the gradient, updates state and weights,
// and clears the gradient. Element-wise, without fused multiply-adds, so a result depends neither
// on how a range is split nor on the instruction set that was chosen at run time.
//
// This file does not know torch: it compiles with its own floating-point options.
#pragma once

#include <array>
#include <cstdint>

#include "lockstep/optim/update.h"

namespace lockstep::optim::kernels {

template <typename T>
struct Arrays {
  T* values = nullptr;
  T* grads = nullptr;
  std::array<T*, 3> state{};  // in the order the update names them; null where it has none
};

struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

void apply(const AdamUpdate& update, const Arrays<float>& arrays, IndexRange range);
void apply(const AdamUpdate& update, const Arrays<double>& arrays, IndexRange range);
void apply(const SGDUpdate& update, const Arrays<float>& arrays, IndexRange range);
void apply(const SGDUpdate& update, const Arrays<double>& arrays, IndexRange range);
void apply(const RMSpropUpdate& update, const Arrays<float>& arrays, IndexRange range);
void apply(const RMSpropUpdate& update, const Arrays<double>& arrays, IndexRange range);
void apply(const AdagradUpdate& update, const Arrays<float>& arrays, IndexRange range);
void apply(const AdagradUpdate& update, const Arrays<double>& arrays, IndexRange range);

// In double, in an order that depends on `size` alone. Longer arrays are summed block by block.
inline constexpr std::int64_t kSumBlock = 4096;
double sum_of_squares(const float* data, std::int64_t size);
double sum_of_squares(const double* data, std::int64_t size);

}  // namespace lockstep::optim::kernels
