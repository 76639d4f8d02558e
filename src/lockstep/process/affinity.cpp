#include "lockstep/process/affinity.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <sched.h>

#include "lockstep/base/error.h"

namespace lockstep::process {
namespace fs = std::filesystem;
namespace {

// A cpu_set_t of any length. The fixed type ends at 1,024 cores, and the kernel refuses masks that
// are shorter than its own.
using Mask = std::vector<unsigned long>;
constexpr std::size_t kWordBits = std::numeric_limits<unsigned long>::digits;
constexpr std::size_t kMostCores = 1 << 20;

cpu_set_t* as_set(Mask& mask) {
  return reinterpret_cast<cpu_set_t*>(mask.data());
}

std::size_t bytes_of(const Mask& mask) {
  return mask.size() * sizeof(unsigned long);
}

bool set_cores(const std::vector<int>& cores) {
  const auto [least, most] = std::minmax_element(cores.begin(), cores.end());
  if (cores.empty() || *least < 0 || *most >= static_cast<int>(kMostCores)) return false;
  Mask mask(static_cast<std::size_t>(*most) / kWordBits + 1);
  for (const int core : cores) {
    const auto bit = static_cast<std::size_t>(core);
    mask[bit / kWordBits] |= 1UL << (bit % kWordBits);
  }
  return ::sched_setaffinity(0, bytes_of(mask), as_set(mask)) == 0;
}

// Reads cpu.max: "max 100000" or "150000 100000", the allowed time and the period.
std::optional<double> quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double time = 0;
  double period = 0;
  if (!(file >> time >> period) || time <= 0 || period <= 0) return std::nullopt;
  return time / period;
}

// Version 1 has the same numbers in two files; -1 means no limit.
std::optional<double> quota_v1(const fs::path& group) {
  std::ifstream time_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  double time = 0;
  double period = 0;
  if (!(time_file >> time) || !(period_file >> period)) return std::nullopt;
  if (time <= 0 || period <= 0) return std::nullopt;
  return time / period;
}

// Lowers `least` to the smallest quota of the group and its parents, because all of them apply.
// Inside a container the path may be a path of the host that does not exist here; then only the
// root, which is the container's own group, has a quota.
template <typename Read>
void apply_quotas(std::optional<double>& least, const fs::path& root, fs::path group, Read read) {
  group = group.relative_path();
  while (true) {
    const std::optional<double> quota = read(root / group);
    if (quota && (!least || *quota < *least)) least = quota;
    if (group.empty()) return;
    group = group.parent_path();
  }
}

bool lists_cpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

std::vector<int> available_cores() {
  Mask mask(1024 / kWordBits);
  while (::sched_getaffinity(0, bytes_of(mask), as_set(mask)) != 0) {
    if (errno != EINVAL || mask.size() * kWordBits >= kMostCores) return {};
    mask.resize(mask.size() * 2);
  }
  std::vector<int> cores;
  for (std::size_t bit = 0; bit < mask.size() * kWordBits; ++bit) {
    if (mask[bit / kWordBits] >> (bit % kWordBits) & 1UL) cores.push_back(static_cast<int>(bit));
  }
  return cores;
}

std::optional<double> cpu_quota(const ControlGroupPaths& paths) {
  std::optional<double> least;
  std::ifstream membership(paths.membership);
  // "0::/path" is version 2; "4:cpu,cpuacct:/path" is version 1.
  for (std::string line; std::getline(membership, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first == line.npos ? first : first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      // If both versions are in use, version 2 is mounted in the folder "unified".
      for (const auto& root : {paths.root, paths.root / "unified"}) {
        apply_quotas(least, root, group, quota_v2);
      }
    } else if (lists_cpu(controllers)) {
      // The folder has the names of all controllers ("cpu,cpuacct"), and "cpu" is a link to it.
      for (const auto& root : {paths.root / controllers, paths.root / "cpu"}) {
        apply_quotas(least, root, group, quota_v1);
      }
    }
  }
  return least;
}

int usable_cores() {
  int cores = static_cast<int>(available_cores().size());
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  if (const auto quota = cpu_quota(); quota && *quota < cores) {
    cores = static_cast<int>(std::ceil(*quota));
  }
  return std::max(cores, 1);
}

std::vector<int> cores_of(const std::vector<int>& available, const WorkerCores& worker) {
  if (worker.local_rank < 0 || worker.local_rank >= worker.workers || worker.threads < 1) {
    throw Error(
        "cores of a worker: expected a local rank below the number of workers and at least one "
        "thread, got local rank {} of {} workers with {} threads",
        worker.local_rank, worker.workers, worker.threads);
  }
  const std::int64_t threads = worker.threads;
  if (worker.workers * threads > static_cast<std::int64_t>(available.size())) return {};
  const auto first = available.begin() + worker.local_rank * threads;
  return {first, first + threads};
}

PinnedScope::PinnedScope(const std::vector<int>& cores) {
  if (cores.empty()) return;
  std::vector<int> previous = available_cores();
  if (!previous.empty() && set_cores(cores)) previous_ = std::move(previous);
}

PinnedScope::~PinnedScope() {
  // This fails if the process has lost these cores in the meantime. The error is ignored.
  if (pinned()) set_cores(previous_);
}

}  // namespace lockstep::process
