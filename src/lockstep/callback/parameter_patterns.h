// Parameters that options choose by their names, or by patterns with *, ? and [abc].
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/state.h"

namespace lockstep {

bool matches_any(const std::vector<std::string>& patterns, const std::string& name);

// Throws ConfigError, which names `asked_by` and the nearest right name, if a pattern matches no
// parameter of the run.
void check_parameter_patterns(const std::vector<std::string>& patterns, const RunState& run,
                              std::string_view asked_by);

}  // namespace lockstep
