// The cost of max_restarts: how much slower a run is that could go on after a fault.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::bench {

// Trains with and without max_restarts in turns, with two workers, and prints the ratio of the
// speeds. `self` is the path of this program.
nlohmann::json run_points(const std::string& self);

}  // namespace lockstep::bench
