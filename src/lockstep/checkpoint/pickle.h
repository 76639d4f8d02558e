// Converts a StateDict to the bytes of a file that Python's torch.load reads, and back. It also
// reads what Python's torch.save wrote.
#pragma once

#include <string>

#include "lockstep/base/file.h"
#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// Tensors are written from the CPU, without gradients, each with its own values only. Tensors that
// share their values in memory share them in the file, too. In addition to the state itself, this
// takes the memory of at most one tensor, and only if a tensor is on a GPU or not contiguous.
void write_pickle(const StateDict& state, const WriteBytes& write);
std::string to_pickle(const StateDict& state);

// Throws CheckpointError if the bytes are not such a file. The tensors refer to `bytes`, without a
// copy. The memory and the time that a file can cost are bounded by its size, whatever it contains.
StateDict from_pickle(std::string bytes);

}  // namespace lockstep::checkpoint
