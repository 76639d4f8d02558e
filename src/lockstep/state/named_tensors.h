// Tensors with their names, in a fixed order: a model's parameters, its buffers, its weights.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

}  // namespace lockstep
