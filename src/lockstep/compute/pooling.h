// Replaces LibTorch's max_pool2d and max_pool3d on the CPU by our kernels, for all models and for
// pooling layers anywhere in them.
#pragma once

#include <optional>
#include <vector>

#include <torch/types.h>

#include "lockstep/compute/max_pool.h"

namespace lockstep::compute {

// Valid for the rest of the process. LibTorch still runs what our kernels cannot do (types other
// than float, other layouts), and everything if the switch is off.
void install_pooling();

struct PoolOptions {
  torch::IntArrayRef kernel;
  torch::IntArrayRef stride;  // empty: the same as the kernel
  torch::IntArrayRef padding;
  torch::IntArrayRef dilation;
  bool ceil_mode = false;
};

// The geometry for [samples, channels, ...] or [channels, ...] with 2 or 3 further dimensions,
// given by `dims`. Nothing if our kernels cannot do it.
std::optional<WindowGeometry> pool_geometry(const torch::Tensor& input, const PoolOptions& options,
                                            std::size_t dims);

// The shape of the result of pooling `input`.
std::vector<std::int64_t> pooled_shape(const torch::Tensor& input, const WindowGeometry& geometry,
                                       std::size_t dims);

}  // namespace lockstep::compute
