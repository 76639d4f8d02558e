// Stochastic weight averaging: the mean of several checkpoints' weights.
#pragma once

#include <filesystem>
#include <span>

#include "lockstep/state/state_dict.h"

namespace lockstep::checkpoint {

// The mean of each floating-point weight over the checkpoints, summed in double; what is counted
// (integers, such as batch norm's batches) is the last one's. Throws CheckpointError, naming file
// and weight, where they are not of one model; ConfigError where there is no checkpoint.
StateDict average_weights(std::span<const std::filesystem::path> paths);

}  // namespace lockstep::checkpoint
