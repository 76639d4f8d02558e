// lockstep doctor: checks whether this machine is ready for training, and says what to change.
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <torch/version.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/command/command.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/engine/blas.h"
#include "lockstep/engine/devices.h"
#include "lockstep/engine/distributed.h"
#include "lockstep/process/affinity.h"
#include "lockstep/process/forked_workers.h"
#include "lockstep/process/gpus.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::command {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Prints one line per finding, and counts the problems.
class Report {
 public:
  void good(const std::string& what, const std::string& found) { line("ok  ", what, found); }
  // It works, but could be better.
  void could_be_better(const std::string& what, const std::string& found,
                       const std::string& advice) {
    line("slow", what, found);
    advise(advice);
  }
  void bad(const std::string& what, const std::string& found, const std::string& advice) {
    line("BAD ", what, found);
    advise(advice);
    ++bad_;
  }
  int num_bad() const { return bad_; }

 private:
  static void line(const char* verdict, const std::string& what, const std::string& found) {
    std::cout << fmt::format("{}  {:<16} {}\n", verdict, what, found) << std::flush;
  }
  static void advise(const std::string& advice) {
    std::cout << fmt::format("      {:<16} -> {}\n", "", advice);
  }

  int bad_ = 0;
};

// The first library among those loaded whose name contains one of these.
std::string loaded_library(const std::vector<std::string>& names) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    const std::string file = path.substr(path.rfind('/') + 1);
    for (const std::string& name : names) {
      if (file.find(name) != std::string::npos) return path;
    }
  }
  return "LibTorch's own";
}

// Of LibTorch, as 13020.
int cuda_version() {
  return static_cast<int>(at::Context::versionCUDART());
}

// As "13.2".
std::string cuda_version_of_torch() {
  return process::cuda_version_text(cuda_version());
}

void check_torch(Report& report) {
  report.good("LibTorch",
              fmt::format("{}, {}, process groups: {}", TORCH_VERSION,
                          torch_has_cuda() ? "CUDA " + cuda_version_of_torch() : "without CUDA",
                          join(comm::available_backends(), ", ")));
}

void check_blas(Report& report) {
  const torch::NoGradGuard no_grad;
  constexpr std::int64_t kSize = 512;
  const torch::Tensor a = torch::rand({kSize, kSize});
  torch::Tensor b = torch::mm(a, a);  // loads the library, so the first use is not timed
  const auto start = Clock::now();
  constexpr int kRounds = 5;
  for (int i = 0; i < kRounds; ++i) torch::mm_out(b, a, a);
  const double flops = 2.0 * kSize * kSize * kSize * kRounds / seconds_since(start);
  const std::string speed =
      fmt::format("{:.0f} GFLOP/s on {} threads", flops / 1e9, at::get_num_threads());
  if (const auto reference = find_reference_blas()) {
    report.bad("BLAS", fmt::format("{}, {}", *reference, speed),
               "the reference BLAS is many times slower than others: "
               "apt-get install libopenblas0-openmp");
    return;
  }
  report.good("BLAS",
              fmt::format("{}, {}", loaded_library({"openblas", "mkl", "blis", "atlas", "libblas"}),
                          speed));
}

void check_threads(Report& report) {
  const int cores = process::usable_cores();
  std::string found =
      fmt::format("{} to use", cores == 1 ? "1 core" : fmt::format("{} cores", cores));
  if (const auto quota = process::cpu_quota()) {
    found += fmt::format(", a quota of {:.1f} cores", *quota);
  }
  const char* const omp = std::getenv("OMP_NUM_THREADS");
  if (omp != nullptr) found += fmt::format(", OMP_NUM_THREADS={}", omp);
  if (at::get_num_threads() > cores) {
    report.could_be_better("cores", fmt::format("{}, but {} threads", found, at::get_num_threads()),
                           fmt::format("more threads than cores wait for each other: "
                                       "OMP_NUM_THREADS={}",
                                       cores));
    return;
  }
  report.good("cores", found);
}

void check_cpu(Report& report) {
  std::vector<std::string> features;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) features.emplace_back("AVX2");
  if (__builtin_cpu_supports("fma")) features.emplace_back("FMA");
  if (__builtin_cpu_supports("avx512f")) features.emplace_back("AVX-512");
  if (!__builtin_cpu_supports("avx2")) {
    report.could_be_better("instructions", features.empty() ? "SSE only" : join(features, ", "),
                           "a processor without AVX2 is several times slower");
    return;
  }
#endif
  report.good("instructions", features.empty() ? "the architecture's own" : join(features, ", "));
}

void check_memory(Report& report) {
  // Workers of a host share memory through memfd, whose only limit is the machine's memory. Gloo
  // and other programs' data loaders use /dev/shm.
  struct statvfs shm {};
  const double pages = static_cast<double>(sysconf(_SC_PHYS_PAGES));
  const double total = pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  std::string found = fmt::format("{} of memory", format_bytes(total));
  if (statvfs("/dev/shm", &shm) == 0) {
    found += fmt::format(", /dev/shm {}", format_bytes(static_cast<double>(shm.f_blocks) *
                                                       static_cast<double>(shm.f_frsize)));
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  found += fmt::format(", {} open files",
                       limit.rlim_cur == RLIM_INFINITY
                           ? "any number of"
                           : with_thousands(static_cast<std::int64_t>(limit.rlim_cur)));
  constexpr rlim_t kFewFiles = 256;
  if (limit.rlim_cur < kFewFiles) {
    report.could_be_better("memory", found, "many workers need more open files: ulimit -n 1024");
    return;
  }
  report.good("memory", found);
}

void check_network(Report& report) {
  try {
    const auto listener = rendezvous::listen_on({.address = "127.0.0.1", .port = 0});
    rendezvous::connect_to({.address = "127.0.0.1", .port = rendezvous::local_port(listener)},
                           Clock::now() + std::chrono::seconds(1));
    report.good("loopback", "127.0.0.1 answers");
  } catch (const Error& error) {
    report.bad("loopback", error.what(), "bring it up: ip link set lo up");
  }
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.data(), nullptr, &hints, &found); error != 0) {
    report.could_be_better(
        "host name", fmt::format("'{}' does not resolve: {}", name.data(), gai_strerror(error)),
        "Gloo between hosts looks it up: add it to /etc/hosts");
    return;
  }
  std::array<char, 256> address = {};
  getnameinfo(found->ai_addr, found->ai_addrlen, address.data(), address.size(), nullptr, 0,
              NI_NUMERICHOST);
  freeaddrinfo(found);
  const bool loopback = std::string_view(address.data()).starts_with("127.");
  report.good("host name",
              fmt::format("'{}' is {}{}", name.data(), address.data(),
                          loopback ? "; with several hosts, it must be an address that "
                                     "the other hosts can reach"
                                   : ""));
}

std::string describe(const process::Gpu& gpu) {
  if (gpu.memory == 0) return gpu.name;
  return fmt::format("{} ({})", gpu.name, format_bytes(static_cast<double>(gpu.memory)));
}

// Computes on every GPU, in a child process: this process must not start CUDA, because it forks
// workers later. Returns the message of the first failure, "" if there is none.
std::string try_gpus(int count) {
  try {
    process::ForkedWorkers child(
        {.size = 2, .timeout = std::chrono::minutes(2)}, [count](process::HostGroup& group) {
          if (group.rank() == 0) return;
          for (int i = 0; i < count; ++i) {
            const torch::Device gpu(torch::kCUDA, static_cast<torch::DeviceIndex>(i));
            use_device(gpu);
            const torch::Tensor ones = torch::ones({64, 64}, gpu);
            const float sum = torch::mm(ones, ones).sum().item<float>();
            if (sum != 64.0F * 64.0F * 64.0F) {
              throw Error("{}: a product of matrices is wrong", gpu.str());
            }
          }
        });
    child.join();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Returns how many GPUs LibTorch can use.
int check_gpus(Report& report) {
  const process::FoundGpus found =
      process::find_gpus({.cuda_version = torch_has_cuda() ? cuda_version() : 0});
  std::vector<std::string> names;
  for (std::size_t i = 0; i < found.usable.size(); ++i) {
    names.push_back(fmt::format("cuda:{} {}", i, describe(found.usable[i])));
  }
  const std::string all = join(names, ", ");
  if (names.empty()) {
    report.good("GPUs", fmt::format("none, training runs on the CPU: {}", found.why_none));
  } else if (!torch_has_cuda()) {
    report.could_be_better("GPUs", all + ", but training runs on the CPU",
                           "LibTorch is linked without CUDA: docs/guide/installing.md says how to "
                           "build with one that has it");
  } else if (const std::string failure = try_gpus(static_cast<int>(names.size()));
             !failure.empty()) {
    report.bad("GPUs", fmt::format("{}, but LibTorch cannot use them: {}", all, failure),
               fmt::format("is the driver new enough for CUDA {}? To train on the CPU instead: "
                           "CUDA_VISIBLE_DEVICES=-1",
                           cuda_version_of_torch()));
  } else {
    report.good("GPUs", all);
    return static_cast<int>(names.size());
  }
  return 0;
}

struct AllReduceTimes {
  std::string communicator;
  double small = 0, large = 0;  // seconds, for 4 bytes and for 4 MB

  std::string text() const {
    return fmt::format("all-reduce of 4 bytes {:.1f} us, of 4 MB {:.2f} ms", small * 1e6,
                       large * 1e3);
  }
};

// Forks workers, as training does, and measures their all-reduce on their devices.
AllReduceTimes time_all_reduce(const DistributedDataParallelOptions& options) {
  AllReduceTimes times;
  DistributedDataParallelEngine engine(options);
  engine.run({.prepare = [] {},
              .work =
                  [&](comm::Communicator& communicator) {
                    const auto time = [&](std::int64_t elements, int rounds) {
                      const torch::Tensor tensor = torch::ones({elements}, engine.device());
                      communicator.all_reduce(tensor);
                      if (!tensor.eq(communicator.size()).all().item<bool>()) {
                        throw Error("rank {}: a sum of {} numbers on {} is wrong",
                                    communicator.rank(), elements, engine.device().str());
                      }
                      const auto start = Clock::now();
                      for (int i = 0; i < rounds; ++i) communicator.all_reduce(tensor);
                      return seconds_since(start) / rounds;
                    };
                    constexpr std::int64_t kLarge = 1 << 20;  // floats
                    times.small = time(1, 200);
                    times.large = time(kLarge, 20);
                    times.communicator = communicator.name();
                  }});
  return times;
}

void check_collective(Report& report) {
  try {
    const AllReduceTimes times =
        time_all_reduce({.workers = 2, .device = torch::kCPU, .threads = 1});
    constexpr double kSlow = 1e-3;
    if (times.small > kSlow) {
      report.could_be_better("two workers", times.text(),
                             "workers wait for a core: is something else running, or is there one "
                             "core only?");
      return;
    }
    report.good("two workers", times.text());
  } catch (const std::exception& error) {
    report.bad("two workers", error.what(),
               "training with several workers on this host would fail in the same way");
  }
}

// One worker per GPU. This process is one of them and starts CUDA, so it can fork no more workers
// for GPUs.
void check_gpu_collective(Report& report, int gpus) {
  if (gpus < 2) return;
  const std::string what = fmt::format("{} GPUs together", gpus);
  try {
    const AllReduceTimes times = time_all_reduce({.workers = gpus,
                                                  .device = torch::Device(torch::kCUDA),
                                                  .threads = 1,
                                                  .timeout = std::chrono::minutes(2)});
    const std::string found = fmt::format("{}, over {}", times.text(), times.communicator);
    if (times.communicator.find("nccl") == std::string::npos) {
      report.could_be_better(what, found,
                             "tensors go through the memory of the CPU: docs/guide/installing.md "
                             "says how to build with NCCL");
      return;
    }
    report.good(what, found);
  } catch (const std::exception& error) {
    report.bad(what, error.what(),
               "training on several GPUs would fail in the same way; NCCL_DEBUG=INFO makes NCCL "
               "say more");
  }
}

int examine() {
  std::cout << fmt::format("lockstep {}\n", LOCKSTEP_VERSION);
  Report report;
  check_torch(report);
  check_blas(report);
  check_threads(report);
  check_cpu(report);
  check_memory(report);
  check_network(report);
  const int gpus = check_gpus(report);
  check_collective(report);
  check_gpu_collective(report, gpus);
  if (report.num_bad() == 0) {
    std::cout << "This machine is ready for training.\n";
    return kDone;
  }
  std::cout << fmt::format("{} found: follow the advice above before you train.\n",
                           report.num_bad() == 1
                               ? "One problem was"
                               : fmt::format("{} problems were", report.num_bad()));
  return kFailed;
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  auto* const command =
      app.add_subcommand("doctor", "Check whether this machine is ready for training");
  command->footer("\nReturns 1 if there is a problem.\n\nExamples:\n  lockstep doctor");
  command->callback([&chosen] { chosen = examine; });
}

}  // namespace lockstep::command
