// LibTorch's max_pool2d and max_pool3d, on the CPU, by our kernels: every model's, wherever its
// pooling layers are.
#pragma once

#include <optional>
#include <vector>

#include <torch/types.h>

#include "lockstep/compute/max_pool.h"

namespace lockstep::compute {

// For the rest of the process. What they cannot do (other types than float, other layouts) goes the
// old way, as does everything where the switch is off.
void install_pooling();

struct PoolOptions {
  torch::IntArrayRef kernel;
  torch::IntArrayRef stride;  // empty: as the kernel
  torch::IntArrayRef padding;
  torch::IntArrayRef dilation;
  bool ceil_mode = false;
};

// Of [samples, channels, ...] or [channels, ...] with 2 or 3 dimensions more, as many as the kernel
// has or `dims` says; nothing where our kernels cannot do it.
std::optional<WindowGeometry> pool_geometry(const torch::Tensor& input, const PoolOptions& options,
                                            std::size_t dims);

// The shape of what is pooled from `input`.
std::vector<std::int64_t> pooled_shape(const torch::Tensor& input, const WindowGeometry& geometry,
                                       std::size_t dims);

}  // namespace lockstep::compute
