#include "lockstep/engine/devices.h"

#include <cstdlib>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/process/environment.h"
#include "lockstep/process/gpus.h"

namespace lockstep {

// hasCUDA() would start CUDA to look for a GPU. hasCUDART() only says whether LibTorch's CUDA
// library has registered itself.
bool torch_has_cuda() {
  return at::Context::hasCUDART();
}

UsableGpus usable_gpus() {
  if (!torch_has_cuda()) {
    return {.why_none =
                "LibTorch is linked without CUDA; docs/guide/installing.md says how to build "
                "with one that has it"};
  }
  process::FoundGpus found =
      process::find_gpus({.cuda_version = static_cast<int>(at::Context::versionCUDART())});
  return {.count = static_cast<int>(found.usable.size()), .why_none = std::move(found.why_none)};
}

int gpu_count() {
  return usable_gpus().count;
}

void check_device(const torch::Device& device, const UsableGpus& gpus) {
  if (!device.is_cuda()) return;
  if (gpus.count == 0) {
    throw ConfigError(
        "device: got '{}', but there is no GPU to use: {}; train on 'cpu', or leave the device out",
        device.str(), gpus.why_none);
  }
  if (device.index() < gpus.count) return;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  throw ConfigError(
      "device: got '{}', but this process can use {}{}; expected {} or 'cpu'", device.str(),
      gpus.count == 1 ? "1 GPU" : fmt::format("{} GPUs", gpus.count),
      visible != nullptr ? fmt::format(" (CUDA_VISIBLE_DEVICES={})", visible) : "",
      gpus.count == 1 ? "'cuda:0'" : fmt::format("'cuda:0' to 'cuda:{}'", gpus.count - 1));
}

torch::Device choose_device(const DeviceChoice& choice) {
  if (choice.wanted && (!choice.wanted->is_cuda() || choice.wanted->has_index())) {
    return *choice.wanted;
  }
  if (choice.gpus == 0) return torch::kCPU;
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(choice.local_rank % choice.gpus)};
}

int launched_local_rank() {
  const auto place = process::find_place(process::current_environment());
  return place ? place->topology.local_rank : 0;
}

void use_device(const torch::Device& device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

void manual_seed(std::uint64_t seed) {
  if (cuda_is_started()) {
    torch::manual_seed(seed);
    return;
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(seed);
}

bool cuda_is_started() {
  return torch_has_cuda() && process::cuda_is_started();
}

void check_forks_before_cuda(bool cuda_was_started) {
  if (!cuda_was_started) return;
  throw WorkerError(
      "cannot fork workers that use GPUs: this program has started CUDA already, and CUDA does not "
      "work in a child of such a process. A tensor on a GPU, torch::cuda::is_available(), "
      "torch::manual_seed(), backward() and an earlier train() on GPUs start it. Call train() "
      "before them (ls::manual_seed() does not start CUDA), or start one process per GPU: lockstep "
      "launch --nproc-per-node gpu -- PROGRAM, or torchrun, mpirun, srun. lockstep tune takes no "
      "launcher: on GPUs it needs one worker for each trial");
}

}  // namespace lockstep
