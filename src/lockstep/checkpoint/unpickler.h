// Reads the values that a pickle describes. Python's own reader calls any function that a pickle
// names. This one knows a short list of names, builds tensors and plain containers, and runs
// nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// Returns the numbers of a storage, in one dimension. They are next to the pickle, in the same
// archive.
using ReadStorage =
    std::function<torch::Tensor(const std::string& key, torch::ScalarType type, std::int64_t size)>;

// The file that a pickle is part of.
struct PickleSource {
  ReadStorage read_storage;
  std::uint64_t bytes = 0;  // size of the whole file; tensors must not claim to be much larger
};

// Keys that are numbers become text, tuples and sets become lists, bytes become text, a parameter
// becomes its tensor. Throws CheckpointError if the pickle is damaged, contains anything else, or
// expands its bytes (by sharing, repeating or expanding) more than any honest file does.
StateValue unpickle(std::span<const char> pickle, const PickleSource& source);

}  // namespace lockstep::checkpoint
