// The inner loops of a gather: rows of a contiguous CPU tensor are selected by index and converted
// while they are copied. For data sets that make their batches in one pass.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/batch.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

// Throws DataError, which names the first index that is not in [0, size), if there is one.
void check_indices(std::span<const std::int64_t> indices, std::int64_t size);

// Returns reuse[key] if its memory fits, else a new CPU tensor. The content is undefined.
torch::Tensor reuse_or_allocate(const Batch& reuse, std::string_view key, torch::IntArrayRef shape,
                                torch::ScalarType type);

// How bytes become floats: (byte / 255 - mean[c]) / std[c]. The code divides and does not multiply
// by the reciprocal, so that the bits are those of PyTorch's ToTensor and Normalize.
struct PixelMap {
  std::int64_t channels = 1;  // innermost in the source, outermost in the result
  std::vector<float> mean;    // one for all channels or one per channel; empty: not normalised
  std::vector<float> std;     // as many as `mean`
};

// The channels of an image of bytes, [H, W] or [H, W, C], if it can be converted to `floats`.
// Nothing if it cannot: then the transforms are applied one by one, and their errors say what they
// expected.
std::optional<std::int64_t> channels_for(const BytesToFloat& floats, torch::IntArrayRef image);

// For all of these, `rows` must be contiguous, the indices must be in range, and `out` must be
// contiguous and of the right type, with one row per index. Rows that are only copied may begin at
// any address: a file may be mapped at one that is not a multiple of the size of its numbers.
void gather_copy(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                 torch::Tensor& out);
// The same. Returns false if a number is NaN or infinite. The check is a part of the copy, so that
// the batch is not read again.
bool gather_copy_finite(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                        torch::Tensor& out);
void gather_bytes_to_int64(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                           torch::Tensor& out);
void gather_bytes_to_float(const torch::Tensor& rows, std::span<const std::int64_t> indices,
                           const PixelMap& map, torch::Tensor& out);

}  // namespace lockstep::data
