#include "lockstep/process/gpus.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/process/child_process.h"
#include "lockstep/process/worker_process.h"

namespace lockstep::process {
namespace {

// A library that is opened at run time. It stays open: libraries of drivers are not made to be
// unloaded.
class DriverLibrary {
 public:
  explicit DriverLibrary(const std::string& file)
      : file_(file), handle_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw Error("{}", ::dlerror());
  }

  // Null if an old library does not have it.
  template <typename Function>
  void find_if_known(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
  }

  template <typename Function>
  void find(Function& function, const char* name) const {
    find_if_known(function, name);
    if (function == nullptr) throw Error("{} has no function {}", file_, name);
  }

 private:
  std::string file_;
  void* handle_;
};

// Why a program that was built with a version of CUDA cannot use the driver. Empty if it can: a
// driver works with all versions of CUDA that have its major version or an older one.
std::string version_problem(int driver, int needed) {
  if (driver == 0 || driver / 1000 >= needed / 1000) return "";
  return fmt::format(
      "the NVIDIA driver is too old: it is made for CUDA {}, and LibTorch was built with CUDA {}; "
      "install a newer driver, or a LibTorch for this one",
      cuda_version_text(driver), cuda_version_text(needed));
}

// What is used of NVML. Its functions return 0 for success.
class Nvml {
 public:
  using Device = void*;
  static constexpr int kNoPermission = 4;

  explicit Nvml(const std::string& file) {
    const DriverLibrary library(file);
    library.find(init_, "nvmlInit_v2");
    library.find(shutdown_, "nvmlShutdown");
    library.find(error_string_, "nvmlErrorString");
    library.find(count_, "nvmlDeviceGetCount_v2");
    library.find(device_, "nvmlDeviceGetHandleByIndex_v2");
    library.find(name_, "nvmlDeviceGetName");
    library.find(uuid_, "nvmlDeviceGetUUID");
    library.find(memory_, "nvmlDeviceGetMemoryInfo");
    library.find(mig_mode_, "nvmlDeviceGetMigMode");
    library.find_if_known(cuda_version_, "nvmlSystemGetCudaDriverVersion_v2");
    check(init_(), "nvmlInit");
  }
  ~Nvml() { shutdown_(); }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  unsigned count() const {
    unsigned count = 0;
    check(count_(&count), "nvmlDeviceGetCount");
    return count;
  }

  // Nothing if this process may not use the device: a container or a job's cgroup hides it, from
  // CUDA, too.
  std::optional<Device> device(unsigned index) const {
    Device device = nullptr;
    const int status = device_(index, &device);
    if (status == kNoPermission) return std::nullopt;
    check(status, "nvmlDeviceGetHandleByIndex");
    return device;
  }

  Gpu describe(Device device) const {
    std::array<char, 96> name = {};
    std::array<char, 96> uuid = {};
    check(name_(device, name.data(), name.size()), "nvmlDeviceGetName");
    check(uuid_(device, uuid.data(), uuid.size()), "nvmlDeviceGetUUID");
    // A GPU that shares the memory of the processor has no such number.
    Memory memory;
    if (memory_(device, &memory) != 0) memory.total = 0;
    return {.name = name.data(), .uuid = uuid.data(), .memory = memory.total};
  }

  // Of the driver's CUDA. 0: it does not say.
  int cuda_version() const {
    int version = 0;
    return cuda_version_ != nullptr && cuda_version_(&version) == 0 ? version : 0;
  }

  bool is_divided(Device device) const {
    unsigned current = 0, pending = 0;
    return mig_mode_(device, &current, &pending) == 0 && current != 0;
  }

 private:
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };

  void check(int status, const char* what) const {
    if (status != 0) throw Error("{}: {}", what, error_string_(status));
  }

  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_)(unsigned, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*mig_mode_)(Device, unsigned*, unsigned*) = nullptr;
  int (*cuda_version_)(int*) = nullptr;
};

// What is used of CUDA's driver interface. Its functions return 0 for success.
class CudaDriver {
 public:
  static constexpr int kNoDevice = 100;

  // Starts CUDA in this process.
  explicit CudaDriver(const std::string& file) {
    const DriverLibrary library(file);
    library.find(init_, "cuInit");
    library.find(error_string_, "cuGetErrorString");
    library.find(count_, "cuDeviceGetCount");
    library.find(device_, "cuDeviceGet");
    library.find(name_, "cuDeviceGetName");
    library.find(uuid_, "cuDeviceGetUuid");
    library.find(memory_, "cuDeviceTotalMem_v2");
    library.find(version_, "cuDriverGetVersion");
  }

  // Throws if the driver is too old for this version of CUDA.
  std::vector<Gpu> devices(int cuda_version) const {
    const int started = init_(0);
    if (started == kNoDevice) return {};
    check(started, "cuInit");
    int version = 0;
    check(version_(&version), "cuDriverGetVersion");
    if (const std::string problem = version_problem(version, cuda_version); !problem.empty()) {
      throw Error("{}", problem);
    }
    int count = 0;
    check(count_(&count), "cuDeviceGetCount");
    std::vector<Gpu> found;
    for (int i = 0; i < count; ++i) {
      int device = 0;
      std::array<char, 256> name = {};
      std::array<unsigned char, 16> uuid = {};
      std::size_t memory = 0;
      check(device_(&device, i), "cuDeviceGet");
      check(name_(name.data(), static_cast<int>(name.size()), device), "cuDeviceGetName");
      check(uuid_(uuid.data(), device), "cuDeviceGetUuid");
      check(memory_(&memory, device), "cuDeviceTotalMem");
      found.push_back({.name = name.data(), .uuid = "GPU-" + dashed(uuid), .memory = memory});
    }
    return found;
  }

 private:
  // 8-4-4-4-12 hexadecimal digits
  static std::string dashed(const std::array<unsigned char, 16>& bytes) {
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
      text += fmt::format("{:02x}", bytes[i]);
    }
    return text;
  }

  void check(int status, const char* what) const {
    if (status == 0) return;
    const char* reason = nullptr;
    if (error_string_(status, &reason) != 0 || reason == nullptr) reason = "unknown error";
    throw Error("{}: {} ({})", what, reason, status);
  }

  int (*init_)(unsigned) = nullptr;
  int (*error_string_)(int, const char**) = nullptr;
  int (*count_)(int*) = nullptr;
  int (*device_)(int*, int) = nullptr;
  int (*name_)(char*, int, int) = nullptr;
  int (*uuid_)(unsigned char*, int) = nullptr;
  int (*memory_)(std::size_t*, int) = nullptr;
  int (*version_)(int*) = nullptr;
};

// What the child process answers: one line per GPU, or a line with the reason why it failed.
constexpr char kFailed = '!';

std::string answer_of_cuda(const GpuSearch& search) {
  try {
    std::string answer;
    for (const Gpu& gpu : CudaDriver(search.cuda).devices(search.cuda_version)) {
      answer += fmt::format("{}\t{}\t{}\n", gpu.memory, gpu.uuid, gpu.name);
    }
    return answer;
  } catch (const std::exception& error) {
    return kFailed + std::string(error.what());
  }
}

std::vector<Gpu> parse_answer(const std::string& answer) {
  if (answer.starts_with(kFailed)) throw Error("{}", answer.substr(1));
  std::vector<Gpu> found;
  for (std::size_t begin = 0; begin < answer.size();) {
    const std::size_t end = answer.find('\n', begin);
    const std::size_t first = answer.find('\t', begin);
    const std::size_t second = answer.find('\t', first + 1);
    found.push_back({.name = answer.substr(second + 1, end - second - 1),
                     .uuid = answer.substr(first + 1, second - first - 1),
                     .memory = std::strtoull(answer.c_str() + begin, nullptr, 10)});
    begin = end + 1;
  }
  return found;
}

// Reads until the other end is closed. Throws at the time limit.
std::string read_all(const FileDescriptor& pipe, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::string text;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd ready{.fd = pipe.get(), .events = POLLIN, .revents = 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw Error("the driver did not answer within {}", format_duration(timeout));
    }
    std::array<char, 4096> bytes;
    const ssize_t size = ::read(pipe.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(bytes.data(), static_cast<std::size_t>(size));
  }
}

// Asks CUDA in a child process. If CUDA runs in this process already, nothing is spoilt by asking
// it here, and a child could not ask it.
std::vector<Gpu> ask_cuda(const GpuSearch& search) {
  if (cuda_is_started(search.cuda)) return CudaDriver(search.cuda).devices(search.cuda_version);
  std::array<int, 2> ends = {};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("no pipe: {}", std::strerror(errno));
  const FileDescriptor read_end(ends[0]);
  FileDescriptor write_end(ends[1]);
  flush_output();
  const pid_t parent = ::getpid();
  const pid_t pid = fork_process(/*bare=*/false);
  if (pid < 0) throw Error("no child process: {}", std::strerror(errno));
  if (pid == 0) {
    die_with_parent(parent);
    const std::string answer = answer_of_cuda(search);
    std::string_view rest = answer;
    while (!rest.empty()) {
      const ssize_t size = ::write(ends[1], rest.data(), rest.size());
      if (size <= 0) break;
      rest.remove_prefix(static_cast<std::size_t>(size));
    }
    ::_exit(rest.empty() ? 0 : 1);
  }
  ChildProcess child(pid);
  write_end = FileDescriptor();
  const std::string answer = read_all(read_end, search.timeout);
  // A driver that crashes closes the pipe, too.
  if (const ChildEnd end = child.reap(); end.known && !end.ok()) {
    throw Error("the child process that asked CUDA: {}", to_string(end));
  }
  return parse_answer(answer);
}

// Nothing if only CUDA can give the answer.
std::optional<FoundGpus> ask_nvml(const GpuSearch& search) {
  const Nvml nvml(search.nvml);
  std::vector<Gpu> found;
  for (unsigned i = 0; i < nvml.count(); ++i) {
    const auto device = nvml.device(i);
    if (!device) continue;
    if (nvml.is_divided(*device)) return std::nullopt;
    found.push_back(nvml.describe(*device));
  }
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  const bool by_bus = order != nullptr && std::string_view(order) == "PCI_BUS_ID";
  const bool is_mixed =
      std::ranges::any_of(found, [&](const Gpu& gpu) { return gpu.name != found.front().name; });
  if (is_mixed && !by_bus) return std::nullopt;
  if (found.empty()) return FoundGpus{.why_none = "the driver finds no GPU"};
  std::string problem = version_problem(nvml.cuda_version(), search.cuda_version);
  if (!problem.empty()) return FoundGpus{.why_none = std::move(problem)};
  return FoundGpus{.usable = std::move(found)};
}

std::string hidden_by(std::string_view list, std::size_t count) {
  return fmt::format("CUDA_VISIBLE_DEVICES='{}' names none of the {} of this machine", list,
                     count == 1 ? "one" : fmt::to_string(count));
}

// A number at the beginning of the text, as CUDA reads it: " 1st" is 1. Nothing if there is none,
// or if it is negative.
std::optional<std::size_t> leading_number(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  constexpr std::size_t kMostDigits = 9;
  if (digits == 0 || digits > kMostDigits) return std::nullopt;
  return static_cast<std::size_t>(std::stoul(std::string(text.substr(0, digits))));
}

std::optional<std::size_t> only_match(std::string_view beginning,
                                      std::span<const std::string> uuids) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].starts_with(beginning)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

}  // namespace

std::vector<std::size_t> visible_devices(std::string_view list,
                                         std::span<const std::string> uuids) {
  std::vector<std::size_t> devices;
  // CUDA takes the kind of all entries from the first one.
  const bool by_uuid = list.starts_with("GPU-");
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view entry = list.substr(0, comma);
    const auto device = !by_uuid                    ? leading_number(entry)
                        : entry.starts_with("GPU-") ? only_match(entry, uuids)
                                                    : std::nullopt;
    if (!device || *device >= uuids.size()) return devices;
    if (std::ranges::find(devices, *device) != devices.end()) return {};
    devices.push_back(*device);
    if (comma == std::string_view::npos) return devices;
    list.remove_prefix(comma + 1);
  }
}

FoundGpus find_gpus(const GpuSearch& search) {
  const char* const variable = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string_view list = variable != nullptr ? variable : "";
  std::string nvml_failure;
  if (!list.starts_with("MIG-")) {
    try {
      if (const auto all = ask_nvml(search)) {
        if (variable == nullptr || all->usable.empty()) return *all;
        std::vector<std::string> uuids;
        for (const Gpu& gpu : all->usable) uuids.push_back(gpu.uuid);
        FoundGpus found;
        for (const std::size_t i : visible_devices(list, uuids)) {
          found.usable.push_back(all->usable[i]);
        }
        if (found.usable.empty()) found.why_none = hidden_by(list, all->usable.size());
        return found;
      }
    } catch (const Error& error) {
      nvml_failure = error.what();
    }
  }
  try {
    FoundGpus found{.usable = ask_cuda(search)};
    if (!found.usable.empty()) return found;
    found.why_none = variable == nullptr
                         ? "CUDA finds no GPU"
                         : fmt::format("CUDA finds no GPU with CUDA_VISIBLE_DEVICES='{}'", list);
    return found;
  } catch (const Error& error) {
    if (nvml_failure.empty()) return {.usable = {}, .why_none = error.what()};
    return {
        .usable = {},
        .why_none = fmt::format("no working NVIDIA driver: {}; {}", nvml_failure, error.what())};
  }
}

bool cuda_is_started(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  using Count = int (*)(int*);
  const auto count = reinterpret_cast<Count>(::dlsym(handle, "cuDeviceGetCount"));
  ::dlclose(handle);  // it stays loaded; this only ends our use of it
  constexpr int kNotInitialized = 3;
  int devices = 0;
  return count != nullptr && count(&devices) != kNotInitialized;
}

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace lockstep::process
