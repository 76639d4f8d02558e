// Runs one side of a comparison: starts its processes, measures them and waits for them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace lockstep::bench {

struct Finished {
  std::string output;      // standard output of the first process
  double started = 0;      // time of the start, by steady_clock
  double peak_memory = 0;  // bytes: the sum of the proportional set sizes of all processes
};

struct RunOptions {
  std::vector<std::vector<std::string>> commands;  // one per process
  bool watch_memory = false;  // slows the processes down, so not for measurements of speed
};

// Throws Error if a process fails.
Finished run_processes(const RunOptions& options);

}  // namespace lockstep::bench
