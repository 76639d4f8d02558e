// Describes a tensor for an error message.
#pragma once

#include <string>

#include <torch/types.h>

namespace lockstep::data {

// "Float [32, 1, 28, 28]"
std::string describe(const torch::Tensor& tensor);

}  // namespace lockstep::data
