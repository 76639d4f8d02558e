// Windows that slide over planes: those of pooling, or the kernel of a convolution.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace lockstep::compute {

// Depth, height, width. With fewer dimensions, the first ones are 1.
using Extent = std::array<std::int64_t, 3>;

struct WindowGeometry {
  std::int64_t planes = 1;  // pooling: samples times channels; convolution: channels of one sample
  Extent in = {1, 1, 1};
  Extent out = {1, 1, 1};
  Extent kernel = {1, 1, 1};
  Extent stride = {1, 1, 1};
  Extent padding = {0, 0, 0};
  Extent dilation = {1, 1, 1};

  std::int64_t in_size() const { return in[0] * in[1] * in[2]; }      // of a plane
  std::int64_t out_size() const { return out[0] * out[1] * out[2]; }  // of a plane
  std::int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  // Whether no element is in two windows.
  bool are_separate() const {
    for (std::size_t axis = 0; axis < 3; ++axis) {
      if (stride[axis] < (kernel[axis] - 1) * dilation[axis] + 1) return false;
    }
    return true;
  }
};

// The windows [begin, end) along an axis whose element k is inside the input. For window w, this
// element is at w * stride + shift.
struct Inside {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t shift = 0;
};

inline Inside inside(const WindowGeometry& g, std::size_t axis, std::int64_t k) {
  const std::int64_t shift = k * g.dilation[axis] - g.padding[axis];
  const std::int64_t stride = g.stride[axis];
  const std::int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const std::int64_t last = g.in[axis] - 1 - shift;
  const std::int64_t end = last < 0 ? 0 : last / stride + 1;
  const std::int64_t begin = std::min(first, g.out[axis]);
  return {begin, std::clamp(end, begin, std::max(begin, g.out[axis])), shift};
}

// Whether every window has an element inside the input.
inline bool has_no_empty_window(const WindowGeometry& g) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    for (std::int64_t window = 0; window < g.out[axis]; ++window) {
      bool found = false;
      for (std::int64_t k = 0; k < g.kernel[axis] && !found; ++k) {
        const std::int64_t at = window * g.stride[axis] - g.padding[axis] + k * g.dilation[axis];
        found = at >= 0 && at < g.in[axis];
      }
      if (!found) return false;
    }
  }
  return true;
}

}  // namespace lockstep::compute
