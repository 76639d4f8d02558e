// Max pooling of planes, vectorised; LibTorch's is scalar in this layout. The results are the same
// to the bit: of equal elements the first is chosen, and NaN is chosen before all numbers.
#pragma once

#include <cstdint>

#include "lockstep/compute/window.h"

namespace lockstep::compute {

// Which element of its window an output was taken from, counted through depth, height, width.
// kNoneChosen: none, because ReLU made all of them 0.
using Chosen = std::uint8_t;
inline constexpr Chosen kNoneChosen = 255;

// Whether Chosen can count the elements of a window, and no window is empty.
bool can_choose(const WindowGeometry& geometry);

// chosen may be null. With `relu`, the result is that of pooling after ReLU.
struct PoolForward {
  const float* in;
  float* out;
  Chosen* chosen;
  bool relu = false;
};
void max_pool(const WindowGeometry& geometry, const PoolForward& pass);

// Writes every element of grad_in.
struct PoolBackward {
  const float* grad_out;
  const Chosen* chosen;
  float* grad_in;
};
void max_pool_backward(const WindowGeometry& geometry, const PoolBackward& pass);

}  // namespace lockstep::compute
