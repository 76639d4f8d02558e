// Measures collectives of two workers on this host: ours through shared memory, against Gloo's
// through c10d, which PyTorch uses.
#pragma once

#include <nlohmann/json.hpp>

namespace lockstep::bench {

// Prints a table, and returns what is in it.
nlohmann::json run_collectives();

}  // namespace lockstep::bench
