// Stands for NVIDIA's library NVML (libnvidia-ml.so.1) in tests. LOCKSTEP_FAKE_NVML describes the
// GPUs, one per ';': "NAME,UUID,MEMORY" and then ",mig" for a divided one, ",hidden" for one that
// this process may not use, ",broken" for one that cannot be opened. "no driver": nvmlInit fails.
// LOCKSTEP_FAKE_CUDA_VERSION is the driver's version of CUDA, as 12060; without it, it is not
// known.
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Fake {
  std::string name, uuid, kind;
  unsigned long long memory = 0;
};

// It is global because the functions of NVML are plain functions.
std::vector<Fake> fakes;

}  // namespace

extern "C" {

int nvmlInit_v2() {
  fakes.clear();
  const char* const text = std::getenv("LOCKSTEP_FAKE_NVML");
  if (text == nullptr || std::strcmp(text, "no driver") == 0) return 9;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line, ';');) {
    std::istringstream fields(line);
    Fake fake;
    std::string memory;
    std::getline(fields, fake.name, ',');
    std::getline(fields, fake.uuid, ',');
    std::getline(fields, memory, ',');
    std::getline(fields, fake.kind);
    fake.memory = std::strtoull(memory.c_str(), nullptr, 10);
    fakes.push_back(fake);
  }
  return 0;
}
int nvmlShutdown() {
  return 0;
}
const char* nvmlErrorString(int status) {
  return status == 9 ? "Driver Not Loaded" : "GPU is lost";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(fakes.size());
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &fakes[index];
  if (fakes[index].kind == "hidden") return 4;
  return fakes[index].kind == "broken" ? 15 : 0;
}
int nvmlDeviceGetName(void* device, char* out, unsigned size) {
  std::strncpy(out, static_cast<Fake*>(device)->name.c_str(), size - 1);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* out, unsigned size) {
  std::strncpy(out, static_cast<Fake*>(device)->uuid.c_str(), size - 1);
  return 0;
}
int nvmlDeviceGetMemoryInfo(void* device, void* memory) {
  if (static_cast<Fake*>(device)->memory == 0) return 3;
  std::memcpy(memory, &static_cast<Fake*>(device)->memory, sizeof(unsigned long long));
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  const char* const text = std::getenv("LOCKSTEP_FAKE_CUDA_VERSION");
  if (text == nullptr) return 12;  // the driver's library of CUDA is not found
  *version = std::atoi(text);
  return 0;
}
int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  if (static_cast<Fake*>(device)->kind != "mig") return 3;
  *current = *pending = 1;
  return 0;
}

}  // extern "C"
