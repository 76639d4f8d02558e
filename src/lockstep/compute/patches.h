// The inputs under every position of a convolution's kernel, as a matrix: the convolution is a
// matrix product with it. Worth it where there are few of them; LibTorch pads channels to eight.
#pragma once

#include <cstdint>

#include "lockstep/compute/max_pool.h"

namespace lockstep::compute {

// Of one sample. Fewer than three dimensions have a depth (and height) of 1.
struct PatchGeometry {
  std::int64_t channels = 1;
  Extent in = {1, 1, 1};
  Extent out = {1, 1, 1};
  Extent kernel = {1, 1, 1};
  Extent stride = {1, 1, 1};
  Extent padding = {0, 0, 0};
  Extent dilation = {1, 1, 1};

  std::int64_t in_size() const { return channels * in[0] * in[1] * in[2]; }
  std::int64_t patch_size() const { return channels * kernel[0] * kernel[1] * kernel[2]; }
  std::int64_t positions() const { return out[0] * out[1] * out[2]; }
  // No input is in two patches.
  bool are_separate() const;
};

// columns[patch_size, positions], rows as a convolution's weights have them; padding is 0.
void gather_patches(const PatchGeometry& geometry, const float* in, float* columns);

// The way back, where patches are separate: all of `in` is written, with 0 where no patch is.
void scatter_patches(const PatchGeometry& geometry, const float* columns, float* in);

}  // namespace lockstep::compute
