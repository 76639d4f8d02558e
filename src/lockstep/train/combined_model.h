// Several networks as one model: Model::combine(). The names of its weights begin with the name of
// the network, as those of an nn::ModuleDict in Python: "generator.0.weight".
#pragma once

#include <string>

#include "lockstep/state/named_tensors.h"

namespace lockstep {

// The tensors of a network, under the names that they have in the combined model.
NamedTensors in_network(const std::string& network, NamedTensors tensors);

// Throws ConfigError if a network cannot have this name: if it is empty or has a dot or a slash.
void check_network_name(const std::string& name);

}  // namespace lockstep
