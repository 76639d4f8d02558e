// Hyper-parameters as a YAML mapping.
#pragma once

#include <string>

#include "lockstep/log/logger.h"

namespace lockstep {

// One line per parameter, sorted by name. Every YAML reader (1.1 or 1.2) gets the same types and
// values back, because text that could be read as another type is quoted.
std::string to_yaml(const HParams& hparams);

}  // namespace lockstep
