// XXH3 over state: how two runs are compared to the bit, and how a damaged checkpoint is noticed.
#pragma once

#include <string>

#include "lockstep/state/named_tensors.h"
#include "lockstep/state/state_dict.h"

namespace lockstep {

// Over the names, shapes, types and bytes of the tensors, in their order. 16 hexadecimal digits.
std::string weights_hash(const NamedTensors& tensors);

// Over every key and value of the tree, in its order.
std::string content_hash(const StateDict& state);

}  // namespace lockstep
