// The parts of a step by themselves.
#pragma once

#include <nlohmann/json.hpp>

namespace lockstep::bench {

// Each fused optimizer against LibTorch's, on one thread.
nlohmann::json run_optimizers();

// A batch of images from bytes to floats against index_select of floats, on one thread.
nlohmann::json run_gather();

}  // namespace lockstep::bench
