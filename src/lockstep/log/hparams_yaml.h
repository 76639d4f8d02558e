// Hyper-parameters as a YAML mapping.
#pragma once

#include <string>

#include "lockstep/log/logger.h"

namespace lockstep {

// One line a parameter, sorted by name. Every YAML reader (1.1 or 1.2) gets the same types and
// values back: text that could be taken for something else is quoted.
std::string to_yaml(const HParams& hparams);

}  // namespace lockstep
