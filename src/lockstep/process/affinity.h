// Which cores a process may use, and on which of them a worker is pinned.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep::process {

// The cores of the calling thread's affinity mask, ascending. Empty if the mask cannot be read.
std::vector<int> available_cores();

// The files in which the kernel shows control groups.
struct ControlGroupPaths {
  std::filesystem::path membership = "/proc/self/cgroup";  // the groups this process is in
  std::filesystem::path root = "/sys/fs/cgroup";           // where their settings are
};

// The CPU time that this process's control groups (version 2 or 1) and their parents allow, as a
// number of cores. Nothing if there is no limit, or none that can be read.
std::optional<double> cpu_quota(const ControlGroupPaths& paths = {});

// How many threads can run at the same time: the number of available cores, or the CPU quota,
// rounded up, if that is smaller. At least 1.
int usable_cores();

struct WorkerCores {
  int local_rank = 0;  // of this worker, 0 to workers - 1
  int workers = 1;     // number of workers on this host
  int threads = 1;     // number of threads per worker
};

// The cores of one worker. No two workers get the same core. Empty if there are not enough cores
// for all workers: then no worker is pinned, because the scheduler shares too few cores better than
// fixed masks would.
std::vector<int> cores_of(const std::vector<int>& available, const WorkerCores& worker);

// Pins the calling thread to the cores, and with it the threads that it starts before this object
// is destroyed. If pinning fails, the run continues more slowly, and pinned() is false. The thread
// that created this object must destroy it. The threads that it started stay pinned.
class PinnedScope {
 public:
  explicit PinnedScope(const std::vector<int>& cores);  // empty: does nothing
  ~PinnedScope();
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;

  bool pinned() const { return !previous_.empty(); }

 private:
  std::vector<int> previous_;  // the cores to restore; empty if nothing was changed
};

}  // namespace lockstep::process
