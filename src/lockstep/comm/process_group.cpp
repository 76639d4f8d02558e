#include "lockstep/comm/process_group.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
// Both untested where Lockstep is developed: Debian's LibTorch has neither.
#ifdef LOCKSTEP_C10D_NCCL
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif
#ifdef LOCKSTEP_C10D_MPI
#define USE_C10D_MPI
#include <torch/csrc/distributed/c10d/ProcessGroupMPI.hpp>
#endif

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

c10::intrusive_ptr<ProcessGroup> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                           const GroupOptions& options) {
  auto settings = c10d::ProcessGroupGloo::Options::create();
  settings->timeout = options.timeout;
  settings->threads = 2;
  settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.size, settings);
}

}  // namespace

std::vector<std::string> available_backends() {
  std::vector<std::string> names = {"gloo"};
#ifdef LOCKSTEP_C10D_NCCL
  names.emplace_back("nccl");
#endif
#ifdef LOCKSTEP_C10D_MPI
  names.emplace_back("mpi");
#endif
  return names;
}

c10::intrusive_ptr<ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupOptions& options) {
  if (options.backend == "gloo") return make_gloo(store, options);
#ifdef LOCKSTEP_C10D_NCCL
  if (options.backend == "nccl") {
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, options.rank, options.size);
  }
#endif
#ifdef LOCKSTEP_C10D_MPI
  if (options.backend == "mpi") return c10d::ProcessGroupMPI::createProcessGroupMPI();
#endif
  throw ConfigError("backend: expected shm or one of this LibTorch's ({}), got '{}'",
                    fmt::join(available_backends(), ", "), options.backend);
}

}  // namespace lockstep::comm
