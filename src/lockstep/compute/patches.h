// The inputs under every position of a convolution's kernel, as a matrix: the convolution is a
// matrix product with it. This is faster if a position has few inputs, because LibTorch pads
// channels to eight.
#pragma once

#include "lockstep/compute/window.h"

namespace lockstep::compute {

// Writes columns[planes * taps, out_size] of one sample, with rows in the order of a convolution's
// weights; padding is 0.
void gather_patches(const WindowGeometry& geometry, const float* in, float* columns);

// The reverse, for patches that do not overlap. Writes all of `in`, with 0 where there is no patch.
void scatter_patches(const WindowGeometry& geometry, const float* columns, float* in);

}  // namespace lockstep::compute
