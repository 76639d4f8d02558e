// Two workers of this host: collectives through shared memory, against Gloo's own through c10d, as
// PyTorch's users have them.
#pragma once

#include <nlohmann/json.hpp>

namespace lockstep::bench {

// Prints a table, and returns what is in it.
nlohmann::json run_collectives();

}  // namespace lockstep::bench
