// LibTorch's process groups, behind one name for all versions of LibTorch.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

#if TORCH_VERSION_MAJOR >= 2
using ProcessGroup = c10d::Backend;
#else
using ProcessGroup = c10d::ProcessGroup;
#endif

struct GroupOptions {
  std::string backend = "gloo";  // the only one available
  std::string address;           // the network address at which other hosts reach this one
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of the start and each operation
};

// Throws ConfigError if there is no such process group.
c10::intrusive_ptr<ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GroupOptions& options);

// Names of backends besides auto and shm: gloo, and nccl if this build has it.
std::vector<std::string> available_backends();

}  // namespace lockstep::comm
