// Fields cut into cubes, and put together again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/loader.h"

namespace lockstep::science {

using Sizes = std::vector<std::int64_t>;

// A field [C, N, …] as cubes [n, C, b, …], row by row; what does not fill a cube is left out.
torch::Tensor split_cubes(const torch::Tensor& field, const Sizes& cube);

// The field of `size` that these cubes [n, C, b, …] were cut from. Throws DataError where they do
// not fill it.
torch::Tensor combine_cubes(const torch::Tensor& cubes, const Sizes& size);

// What a loader's samples look like to who builds a network for them.
struct FieldShape {
  std::int64_t channels = 1;
  Sizes size;                // of a sample, without channels
  std::int64_t outputs = 1;  // elements of a target

  bool operator==(const FieldShape&) const = default;
};

// "3 channels of [16, 16, 16], 12288 outputs"
std::string describe(const FieldShape& shape);

// Throws DataError where samples are not [C, N, …] with one to three dimensions, or have no
// targets.
FieldShape shape_of(const data::Loader& loader);

}  // namespace lockstep::science
