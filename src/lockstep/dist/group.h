// The process group, for the other files of this module.
#pragma once

#include <cstdint>

#include "lockstep/comm/communicator.h"
#include "lockstep/engine/background_sums.h"

namespace lockstep::dist {

// The current group. Without one, a group of only this process; throws ConfigError if this process
// is one of several.
comm::Communicator& group();

// Different for each group that this process joins; 0 without a group.
std::uint64_t group_number();

// Sums over the current group. All models of the process use this one object, so that their sums
// are computed in the order in which they were added.
BackgroundSums& background_sums();

}  // namespace lockstep::dist
