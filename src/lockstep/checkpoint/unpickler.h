// The values that a pickle describes. Python's own reader calls whatever function a pickle names;
// this one knows a short list of them, builds tensors and plain containers, and runs nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// The numbers of a storage, in one dimension: they are beside the pickle, in the same archive.
using ReadStorage =
    std::function<torch::Tensor(const std::string& key, torch::ScalarType type, std::int64_t size)>;

// What is beside a pickle, in the same file.
struct PickleSource {
  ReadStorage read_storage;
  std::uint64_t bytes = 0;  // of the whole file; tensors may not pretend to be much larger
};

// Keys that are numbers become text, tuples and sets become lists, bytes become text, a parameter
// its tensor. Throws CheckpointError where the pickle is damaged, or holds anything else, or makes
// more of its bytes (by sharing, repeating or expanding) than any honest file does.
StateValue unpickle(std::span<const char> pickle, const PickleSource& source);

}  // namespace lockstep::checkpoint
