// Several runs of one program, one after the other. The calling process is rank 0 of the workers
// that it forks, so it has started CUDA after its first run on a GPU, and from then on it can fork
// no workers that use GPUs (docs/decisions/devices.md). A program that has several runs to do finds
// this out here, and not after the first one, which may take hours.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <torch/types.h>

#include "lockstep/engine/engine.h"

namespace lockstep {

struct PlannedRun {
  torch::Device device = torch::kCPU;
  bool forks = false;  // workers, from the calling process
};
PlannedRun planned_run(const Engine& engine);

// The index of the first run that would be refused. Nothing if all can be done.
std::optional<std::size_t> refused_run(const std::vector<PlannedRun>& runs);

}  // namespace lockstep
