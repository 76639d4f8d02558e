// The inputs under every position of a convolution's kernel, as a matrix: the convolution is a
// matrix product with it. Worth it where there are few of them; LibTorch pads channels to eight.
#pragma once

#include "lockstep/compute/window.h"

namespace lockstep::compute {

// columns[planes * taps, out_size] of one sample, rows as a convolution's weights have them;
// padding is 0.
void gather_patches(const WindowGeometry& geometry, const float* in, float* columns);

// The way back, where patches are separate: all of `in` is written, with 0 where no patch is.
void scatter_patches(const WindowGeometry& geometry, const float* columns, float* in);

}  // namespace lockstep::compute
