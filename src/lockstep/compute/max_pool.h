// Max pooling of planes, vectorised; LibTorch's is scalar in this layout. The results are the same
// to the bit: the first of equal elements is chosen, and a NaN before all.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::compute {

// Depth, height, width. Two dimensions have a depth of 1.
using Extent = std::array<std::int64_t, 3>;

struct PoolGeometry {
  std::int64_t planes = 0;  // samples times channels
  Extent in = {1, 1, 1};
  Extent out = {1, 1, 1};
  Extent kernel = {1, 1, 1};
  Extent stride = {1, 1, 1};
  Extent padding = {0, 0, 0};
  Extent dilation = {1, 1, 1};

  std::int64_t in_size() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_size() const { return out[0] * out[1] * out[2]; }
};

// An output's element of its window, counted through depth, height, width; or none of them, where
// ReLU left nothing.
using Chosen = std::uint8_t;
inline constexpr Chosen kNoneChosen = 255;

// Whether a window's elements can be counted so.
bool can_choose(const PoolGeometry& geometry);

// chosen may be null. With `relu`, of the input's positive elements: what pooling after ReLU gives.
struct PoolForward {
  const float* in;
  float* out;
  Chosen* chosen;
  bool relu = false;
};
void max_pool(const PoolGeometry& geometry, const PoolForward& pass);

// Writes all of grad_in.
struct PoolBackward {
  const float* grad_out;
  const Chosen* chosen;
  float* grad_in;
};
void max_pool_backward(const PoolGeometry& geometry, const PoolBackward& pass);

}  // namespace lockstep::compute
