// A finished run in memory, from which the same runner can go on.
#pragma once

#include <optional>
#include <string>

#include "lockstep/state/state_dict.h"

namespace lockstep {

struct KeptRun {
  StateDict snapshot = {};                      // as in a checkpoint; empty on ranks other than 0
  std::optional<StateDict> best_weights = {};   // with load_best_on_end
  std::optional<std::string> stop_reason = {};  // of a point: a request to end after the epoch
  std::string unavailable =
      {};  // why rank 0 has no snapshot; empty: it has one. The same on all ranks
};

}  // namespace lockstep
