// A stand-in for NVIDIA's driver with two GPUs (support/fake_nvml.cpp), for death tests: the loader
// of programs reads LD_LIBRARY_PATH when a process begins, so it is found only by a process that is
// started with these variables. In a build without CUDA there is still no GPU.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace lockstep {

// The variables, with those of the stand-in. Its libraries are in `folder`.
inline std::map<std::string, std::string> with_two_gpus(
    const std::string& folder, std::map<std::string, std::string> variables = {}) {
  const char* const folders = std::getenv("LD_LIBRARY_PATH");
  variables["LD_LIBRARY_PATH"] = folder + (folders != nullptr ? std::string(":") + folders : "");
  variables["LOCKSTEP_FAKE_NVML"] = "A100,GPU-aa11,1;A100,GPU-bb22,1";
  variables["CUDA_VISIBLE_DEVICES"] = "0,1";
  return variables;
}

}  // namespace lockstep
