// --input-shape of `lockstep export`: an input of a model, if it cannot be taken from the data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

namespace lockstep::command {

struct InputShape {
  std::string name;                 // "" if the argument does not say it
  std::vector<std::int64_t> sizes;  // of one sample, without the dimension of the batch
  torch::ScalarType type = torch::kFloat32;
};

// Reads "1,28,28", "features=1,28,28", "tokens=16:long" or "lengths=:long", which is one number per
// sample. Throws ConfigError, which names the argument, for anything else.
InputShape read_input_shape(const std::string& argument);

// A batch of such samples: random numbers, or ones if they are integers, because an integer may be
// a token or a length.
torch::Tensor example_of(const InputShape& shape, std::int64_t samples);

}  // namespace lockstep::command
