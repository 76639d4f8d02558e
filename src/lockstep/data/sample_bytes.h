// A sample as bytes in memory that processes share: keys, shapes and values, one after the other.
#pragma once

#include <cstddef>

#include "lockstep/data/batch.h"

namespace lockstep::data {

// Whether all tensors are dense and on the CPU, so that they are plain bytes.
bool has_plain_bytes(const Batch& sample);

// How many bytes write_sample() needs. They begin at a multiple of kSampleAlignment.
inline constexpr std::size_t kSampleAlignment = 64;
std::size_t sample_bytes(const Batch& sample);
void write_sample(const Batch& sample, std::byte* to);

enum class SampleMemory { kCopy, kView };

// The sample that write_sample() wrote. A view is valid as long as the memory is, and must not be
// written to.
Batch read_sample(const std::byte* from, SampleMemory memory);

}  // namespace lockstep::data
