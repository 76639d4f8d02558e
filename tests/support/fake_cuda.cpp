// Stands for CUDA's driver (libcuda.so.1) in tests. LOCKSTEP_FAKE_CUDA has the names of the GPUs,
// separated by ';'. "crash", "hang" and "error" say what cuInit does instead. cuInit appends the
// number of its process to the file LOCKSTEP_FAKE_CUDA_LOG. LOCKSTEP_FAKE_CUDA_VERSION is the
// driver's version, 12060 without it.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

constexpr int kNotInitialized = 3;

// They are global because the functions of the driver are plain functions.
bool started = false;
std::vector<std::string> names;

}  // namespace

extern "C" {

int cuInit(unsigned) {
  if (const char* const log = std::getenv("LOCKSTEP_FAKE_CUDA_LOG")) {
    std::ofstream(log, std::ios::app) << ::getpid() << '\n';
  }
  const char* const text = std::getenv("LOCKSTEP_FAKE_CUDA");
  const std::string all = text != nullptr ? text : "";
  if (all == "crash") std::abort();
  if (all == "hang") ::sleep(600);
  if (all == "error") return 803;
  if (all.empty()) return 100;
  names.clear();
  std::istringstream list(all);
  for (std::string name; std::getline(list, name, ';');) names.push_back(name);
  started = true;
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "system has unsupported display driver / cuda driver combination";
  return 0;
}
int cuDeviceGetCount(int* count) {
  if (!started) return kNotInitialized;
  *count = static_cast<int>(names.size());
  return 0;
}
int cuDriverGetVersion(int* version) {
  const char* const text = std::getenv("LOCKSTEP_FAKE_CUDA_VERSION");
  *version = text != nullptr ? std::atoi(text) : 12060;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
int cuDeviceGetName(char* out, int size, int device) {
  std::strncpy(out, names[static_cast<std::size_t>(device)].c_str(),
               static_cast<std::size_t>(size) - 1);
  return 0;
}
int cuDeviceGetUuid(unsigned char* out, int device) {
  std::memset(out, device, 16);
  return 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{8} << 30;
  return 0;
}

}  // extern "C"
