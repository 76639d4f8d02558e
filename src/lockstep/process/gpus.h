// Finds the GPUs of this machine without starting CUDA in this process. A process that has started
// CUDA cannot fork workers that use GPUs: CUDA does not work in a child of such a process
// (docs/decisions/devices.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::process {

struct Gpu {
  std::string name;          // "NVIDIA A100-SXM4-40GB"
  std::string uuid;          // "GPU-…", or "MIG-…" for a part of a GPU
  std::uint64_t memory = 0;  // bytes; 0: the driver does not say
};

struct FoundGpus {
  // Those that a CUDA program in this environment can use, in the order of CUDA's numbers: the
  // first one is cuda:0.
  std::vector<Gpu> usable;
  // Why there is none; "" if there are some.
  std::string why_none = {};
};

struct GpuSearch {
  // The driver's libraries, as dlopen() takes them.
  std::string nvml = "libnvidia-ml.so.1";
  std::string cuda = "libcuda.so.1";
  // If CUDA has to be asked in a child process, the child has this time.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // The version of CUDA that the program was built with, 12060 for 12.6. If the driver is made for
  // an older major version, no GPU is usable. 0: every driver is new enough.
  int cuda_version = 0;
};

// Asks NVML, the driver's library for monitoring, and applies CUDA_VISIBLE_DEVICES as CUDA does.
// NVML cannot say everything that CUDA knows. So a child process asks CUDA itself if NVML is not
// installed or fails, if a GPU is divided into parts (MIG), or if the GPUs are of several kinds and
// CUDA_DEVICE_ORDER is not PCI_BUS_ID: then only CUDA knows their order. No other thread may change
// the environment during the call.
FoundGpus find_gpus(const GpuSearch& search = {});

// The devices that CUDA_VISIBLE_DEVICES names, as indices of `uuids`: numbers, or UUIDs and
// beginnings of them. The list ends before the first entry that names no device or several. A
// device that is named twice makes the result empty, as it does in CUDA.
std::vector<std::size_t> visible_devices(std::string_view list, std::span<const std::string> uuids);

// Whether CUDA has been started in this process, by whatever part of it. Does not load or start it.
bool cuda_is_started(const std::string& library = GpuSearch().cuda);

// "12.6" of 12060
std::string cuda_version_text(int version);

}  // namespace lockstep::process
