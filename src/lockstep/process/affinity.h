// Which cores a process may use, and which of them it takes.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace lockstep::process {

// The cores of the calling thread's affinity mask, ascending; none where the system does not say.
std::vector<int> available_cores();

// Where the kernel shows control groups.
struct ControlGroupPaths {
  std::filesystem::path membership = "/proc/self/cgroup";  // the groups this process is in
  std::filesystem::path root = "/sys/fs/cgroup";           // where their settings are
};

// How many cores' worth of time this process's control groups (version 2 or 1) and their parents
// allow. Nothing where there is no limit, or none that can be read.
std::optional<double> cpu_quota(const ControlGroupPaths& paths = {});

// How many threads can run at a time: the available cores, or fewer where a quota, rounded up,
// allows only so many. At least 1.
int usable_cores();

struct WorkerCores {
  int local_rank = 0;  // of the worker that asks, 0 to workers - 1
  int workers = 1;     // on this host
  int threads = 1;     // that each of them runs
};

// The cores of one worker: no core is another's. Empty where they do not fit for all: then nobody
// is pinned, as the scheduler shares too few cores better than fixed masks would.
std::vector<int> cores_of(const std::vector<int>& available, const WorkerCores& worker);

// Keeps the calling thread, and the threads it starts meanwhile, on the cores. Failing to pin costs
// speed, never the run: pinned() tells. Must be destroyed by the thread that made it; threads
// started meanwhile stay pinned.
class PinnedScope {
 public:
  explicit PinnedScope(const std::vector<int>& cores);  // empty: does nothing
  ~PinnedScope();
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;

  bool pinned() const { return !previous_.empty(); }

 private:
  std::vector<int> previous_;  // what to go back to; empty where nothing was changed
};

}  // namespace lockstep::process
