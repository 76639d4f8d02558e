// Fields cut into cubes, and put together again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/loader.h"

namespace lockstep::science {

using Sizes = std::vector<std::int64_t>;

// Cuts a field [C, N, …] into cubes [n, C, b, …], row by row. Points at the end of a side that do
// not fill a cube are left out.
torch::Tensor split_cubes(const torch::Tensor& field, const Sizes& cube);

// Puts cubes [n, C, b, …] together to the field of `size` that they were cut from. Throws DataError
// if they do not fill it.
torch::Tensor combine_cubes(const torch::Tensor& cubes, const Sizes& size);

// The shape of a loader's samples, from which a network for them is built.
struct FieldShape {
  std::int64_t channels = 1;
  Sizes size;                // of a sample, without channels
  std::int64_t outputs = 1;  // elements of a target

  bool operator==(const FieldShape&) const = default;
};

// "3 channels of [16, 16, 16], 12288 outputs"
std::string describe(const FieldShape& shape);

// Throws DataError if samples are not [C, N, …] with one to three dimensions, or have no targets.
FieldShape shape_of(const data::Loader& loader);

}  // namespace lockstep::science
