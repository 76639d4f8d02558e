// Whole trainings against PyTorch's, in turns.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::bench {

struct CompareOptions {
  std::vector<std::string> works;  // names of workloads, and "start" and "memory"
  std::string self;                // this program, which runs one workload when told so
  std::string python = "/usr/bin/python3";
};

// {"A": {"pytorch": {"1": samples/s, "2": ...}, "lockstep": {...},
//        "ratio": {"1", "2", "best"}, "scaling"}, ...}.
// Throws Error where the two sides did not reach the same loss.
nlohmann::json compare(const CompareOptions& options);

}  // namespace lockstep::bench
