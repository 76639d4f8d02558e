// Which device a process computes on. Nothing here starts CUDA except use_device(), so a process
// can ask and then fork workers that each start CUDA themselves (docs/decisions/devices.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <torch/types.h>

namespace lockstep {

// Whether the LibTorch of this program was built with CUDA and is linked with it.
bool torch_has_cuda();

// The GPUs that LibTorch can use.
struct UsableGpus {
  int count = 0;
  std::string why_none = {};  // "" if there are some
};
// Asks the driver each time. None if LibTorch has no CUDA; then the driver is not asked.
UsableGpus usable_gpus();

// The number of usable GPUs.
int gpu_count();

// Throws ConfigError if there is no such device. It names the device, how many GPUs there are, and
// what to do.
void check_device(const torch::Device& device, const UsableGpus& gpus);

struct DeviceChoice {
  std::optional<torch::Device> wanted = {};  // what the user said; a GPU may have no number
  int local_rank = 0;                        // of this process on its host
  int gpus = 0;                              // how many this process can use
};
// The device of a process: the one that the user said. Without a number, and by default, each
// process of a host takes the GPU of its local rank; if there are more processes than GPUs, some
// share one. A launcher may show each process a GPU of its own: then all take cuda:0, and these are
// different GPUs. The CPU if there is no GPU.
torch::Device choose_device(const DeviceChoice& choice);

// The rank that a launcher gave this process among those of its host; 0 without a launcher. Throws
// ConfigError if the launcher's variables contradict each other.
int launched_local_rank();

// Makes the device the current one of this thread. For a GPU, this starts CUDA in this process.
void use_device(const torch::Device& device);

// Seeds LibTorch's generators of random numbers, as torch::manual_seed() does. It seeds those of
// GPUs only if CUDA has been started; torch::manual_seed() would start CUDA.
void manual_seed(std::uint64_t seed);

// Whether CUDA has been started in this process. Then it does not work in processes that are forked
// from now on.
bool cuda_is_started();

// Throws WorkerError, which says what to do, if CUDA was started in a process before it forked
// workers that shall use GPUs.
void check_forks_before_cuda(bool cuda_was_started);

}  // namespace lockstep
