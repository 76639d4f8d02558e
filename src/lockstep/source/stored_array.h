// Arrays of numbers as files have them, and the tensors that they become.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <torch/types.h>

namespace lockstep::data {

// How a file stores one number.
struct StoredNumber {
  torch::ScalarType type = torch::kUInt8;  // in the tensor
  std::size_t bytes = 1;                   // in the file
  // Unsigned, with more than one byte. LibTorch 1.13 has no such types, so 16 bits become int32, 32
  // bits and 64 bits become int64.
  bool is_unsigned = false;
  bool is_swapped = false;  // in the other byte order than this machine's
};

struct StoredArray {
  StoredNumber number;
  std::vector<std::int64_t> shape;
  bool is_column_major = false;       // Fortran's order: the first index changes fastest
  std::span<const char> bytes;        // as many as bytes_of() says
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
};

// The bytes of an array. Nothing if a size is negative, if there are more than 32 of them, or if
// there are more bytes than a file can have.
std::optional<std::uint64_t> bytes_of(std::span<const std::int64_t> shape,
                                      const StoredNumber& number);

// Where the numbers of a tensor may begin. Torch's functions need them at a multiple of their size.
// A data set that only copies rows takes them at any place.
enum class Alignment { kNatural, kAny };

// A view of the bytes, which keeps their owner alive and must not be written to. If the numbers
// have another type or byte order than the tensor, or are at a place that is not allowed, it is a
// converted copy in memory instead. In Fortran's order the tensor has the strides of that order.
// Throws DataError if an unsigned number of 64 bits does not fit into int64, or if a bool is
// neither 0 nor 1: all bytes of an array of bools are read for this.
torch::Tensor tensor_of(const StoredArray& array, Alignment alignment = Alignment::kNatural);

// Where the first byte is that is neither 0 nor 1. It is no bool, and torch's functions may do
// anything with it.
std::optional<std::size_t> find_non_bool(std::span<const char> bytes);

}  // namespace lockstep::data
