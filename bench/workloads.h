// The workloads that are measured. Models, data and order are the same as in pytorch.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/lockstep.h>

namespace lockstep::bench {

struct Workload {
  std::string_view name;
  std::string_view what;
  int rounds;                         // measured rounds of each side
  std::int64_t batch_size;            // per worker
  std::optional<std::int64_t> steps;  // default: an epoch of whole batches for all workers
  double lr;                          // of Adam
};

std::span<const Workload> workloads();

// Throws ConfigError if there is no workload of that name.
const Workload& workload(std::string_view name);

struct WorkResult {
  double samples_per_second = 0;
  double loss = 0;          // the mean over all samples: both sides must have done the same work
  double weights_norm = 0;  // of all parameters after training, for the same reason
  double first_step = 0;    // time of its end, by the clock that all processes of a machine share
};

struct WorkOptions {
  int workers = 1;
  std::int64_t epochs = 1;  // more for a profiler; the results are those of the last epoch
  bool profile = false;     // prints where the time goes
  int max_restarts = 0;     // as the option of train()
};

// Trains with one thread per worker.
WorkResult run_workload(const Workload& workload, const WorkOptions& options);

}  // namespace lockstep::bench
