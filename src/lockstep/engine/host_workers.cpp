#include "lockstep/engine/host_workers.h"

#include <torch/cuda.h>

#include "lockstep/compute/autograd_probe.h"
#include "lockstep/process/affinity.h"

namespace lockstep {

int gpu_count() {
  return torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
}

int default_workers() {
  const int gpus = gpu_count();
  return gpus > 0 ? gpus : process::usable_cores();
}

void run_host_workers(const HostWorkersOptions& options,
                      const std::function<void(process::HostGroup&)>& work) {
  process::ForkedWorkers forked({.size = options.workers,
                                 .first_rank = options.first_rank,
                                 .timeout = options.timeout,
                                 .probe = compute::autograd_works,
                                 .on_line = options.on_line},
                                work);
  run_as_rank_zero(forked, work);
}

void run_as_rank_zero(process::ForkedWorkers& forked,
                      const std::function<void(process::HostGroup&)>& work) {
  process::HostGroup& host_group = forked.host_group();
  or_report([&](const std::string& reason,
                process::FailureKind kind) { host_group.fail(0, reason, kind); },
            [&] { work(host_group); });
  forked.join();
}

Topology topology_of(const process::HostGroup& host_group) {
  return {.rank = host_group.rank(),
          .world_size = host_group.size(),
          .local_rank = host_group.rank(),
          .local_size = host_group.size()};
}

}  // namespace lockstep
