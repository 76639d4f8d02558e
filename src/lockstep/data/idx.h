// IDX, the format of MNIST: a magic number with type and rank, the dimensions, the values, all
// big-endian.
#pragma once

#include <filesystem>

#include <torch/types.h>

namespace lockstep::data {

// Reads a plain or gzipped IDX file into a tensor of its own type: uint8, int8, int16, int32,
// float32 or float64. Throws DataError naming the file, what was found and what was expected; a
// file is checked against what its header promises before that is allocated.
torch::Tensor read_idx(const std::filesystem::path& path);

}  // namespace lockstep::data
