// One side of a comparison: processes that are started, watched and waited for.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::bench {

struct Finished {
  std::string output;      // of the first process, standard output
  double started = 0;      // when, by steady_clock
  double peak_memory = 0;  // bytes, the proportional set sizes of all processes together
};

struct RunOptions {
  std::vector<std::vector<std::string>> commands;  // one a process
  bool watch_memory = false;  // costs the processes some time: not where speed is measured
};

// Throws Error where a process does not end well.
Finished run_processes(const RunOptions& options);

}  // namespace lockstep::bench
