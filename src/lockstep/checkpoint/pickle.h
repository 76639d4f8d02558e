// A StateDict as the bytes of a file that Python's torch.load reads, and back: also from bytes that
// Python's torch.save wrote.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// Tensors are written from the CPU, without gradients, each with its own values only.
std::vector<char> to_pickle(const StateDict& state);

// Throws CheckpointError where the bytes are no such file; `what` names them in the message.
StateDict from_pickle(std::span<const char> bytes, const std::string& what);

}  // namespace lockstep::checkpoint
