// The inner loops of a gather: rows of a contiguous CPU tensor, picked by index, converted while
// they are copied. Internal to data/: everyone else gathers through a Dataset.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/batch.h"

namespace lockstep::data {

// Throws DataError naming the first index that is not in [0, size).
void check_indices(std::span<const std::int64_t> indices, std::int64_t size);

// reuse[key] where its memory fits, else new memory; a CPU tensor whose content means nothing.
torch::Tensor reuse_or_allocate(const Batch& reuse, std::string_view key, torch::IntArrayRef shape,
                                torch::ScalarType type);

// How bytes become floats: (byte / 255 - mean[c]) / std[c]. Divisions are divisions, not products
// with a reciprocal: the bits are those of PyTorch's ToTensor and Normalize.
struct PixelMap {
  std::int64_t channels = 1;  // innermost in the source, outermost in the result
  std::vector<float> mean;    // one for all channels or one each; empty: not normalised
  std::vector<float> std;     // as many as `mean`
};

// In all of these `rows` is contiguous, indices are in range, and `out` is contiguous, of the right
// type, with one row an index.
void gather_copy(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                 torch::Tensor& out);
void gather_bytes_to_int64(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                           torch::Tensor& out);
void gather_bytes_to_float(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                           const PixelMap& map, torch::Tensor& out);

}  // namespace lockstep::data
