// Tensors with their names, in a fixed order: a model's parameters, its buffers, its weights.
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

}  // namespace lockstep
