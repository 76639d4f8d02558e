// XXH3 hashes. They show whether two runs have the same bits, and whether a checkpoint is damaged.
#pragma once

#include <string>

#include "lockstep/state/named_tensors.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {

// The hash of the tensors' names, shapes, types and bytes, in their order: 16 hexadecimal digits.
std::string weights_hash(const NamedTensors& tensors);

// The hash of every key and value of the tree, in its order.
std::string content_hash(const StateDict& state);

}  // namespace lockstep
