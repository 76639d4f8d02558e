// The values that a pickle describes. Python's own reader calls whatever function a pickle names;
// this one knows a short list of them, builds tensors and plain containers, and runs nothing.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// The numbers of a storage, in one dimension: they are beside the pickle, in the same archive.
using ReadStorage =
    std::function<torch::Tensor(const std::string& key, torch::ScalarType type, std::int64_t size)>;

// Keys that are numbers become text, tuples and sets become lists, bytes become text, a parameter
// its tensor. Throws CheckpointError where the pickle is damaged, or holds anything else.
StateValue unpickle(std::span<const char> pickle, const ReadStorage& read_storage);

}  // namespace lockstep::checkpoint
