// A StateDict as the bytes of a file that Python's torch.load reads, and back: also from bytes that
// Python's torch.save wrote.
#pragma once

#include <string>

#include "lockstep/base/file.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// Tensors are written from the CPU, without gradients, each with its own values only; tensors that
// are the same numbers in memory share them in the file, too. Beside the state itself, this takes
// the memory of one tensor at most, and only for those that are on a GPU or not contiguous.
void write_pickle(const StateDict& state, const WriteBytes& write);
std::string to_pickle(const StateDict& state);

// Throws CheckpointError where the bytes are no such file. The tensors lie in `bytes`, without a
// copy. The memory and the time that a file can make this take are bounded by its size, whatever is
// in it.
StateDict from_pickle(std::string bytes);

}  // namespace lockstep::checkpoint
