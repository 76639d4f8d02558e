// IDX, the format of MNIST: a magic number with the type and the number of dimensions, the
// dimensions and the values, all big-endian.
#pragma once

#include <filesystem>

#include <torch/types.h>

namespace lockstep::data {

// Reads a plain or gzipped IDX file into a tensor of the same type: uint8, int8, int16, int32,
// float32 or float64. Throws DataError, which names the file, what was found and what was expected.
// Memory is allocated only after the size of the file was compared with its header.
torch::Tensor read_idx(const std::filesystem::path& path);

}  // namespace lockstep::data
