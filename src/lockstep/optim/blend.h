// One step of a moving average of tensors.
#pragma once

#include <torch/types.h>

namespace lockstep::optim {

// values += weight (others - values), in the type of `values`. A weight of 1 copies; so does any
// weight if the type is one of integers. Every element is rounded alone and without fused
// multiply-adds, so the result does not depend on the number of threads. No graph is recorded.
void blend(const torch::Tensor& values, const torch::Tensor& others, double weight);

}  // namespace lockstep::optim
