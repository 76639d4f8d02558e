#include "lockstep/engine/run_series.h"

namespace lockstep {

PlannedRun planned_run(const Engine& engine) {
  return {.device = engine.device(), .forks = engine.forks_workers()};
}

std::optional<std::size_t> refused_run(const std::vector<PlannedRun>& runs) {
  bool cuda_runs = false;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i].device.is_cuda()) continue;
    if (cuda_runs && runs[i].forks) return i;
    cuda_runs = true;
  }
  return std::nullopt;
}

}  // namespace lockstep
