// Max pooling of planes, vectorised; LibTorch's is scalar in this layout. The results are the same
// to the bit: the first of equal elements is chosen, and a NaN before all.
#pragma once

#include <cstdint>

#include "lockstep/compute/window.h"

namespace lockstep::compute {

// An output's element of its window, counted through depth, height, width; or none of them, where
// ReLU left nothing.
using Chosen = std::uint8_t;
inline constexpr Chosen kNoneChosen = 255;

// Whether a window's elements can be counted so, and none is empty.
bool can_choose(const WindowGeometry& geometry);

// chosen may be null. With `relu`, of the input's positive elements: what pooling after ReLU gives.
struct PoolForward {
  const float* in;
  float* out;
  Chosen* chosen;
  bool relu = false;
};
void max_pool(const WindowGeometry& geometry, const PoolForward& pass);

// Writes all of grad_in.
struct PoolBackward {
  const float* grad_out;
  const Chosen* chosen;
  float* grad_in;
};
void max_pool_backward(const WindowGeometry& geometry, const PoolBackward& pass);

}  // namespace lockstep::compute
