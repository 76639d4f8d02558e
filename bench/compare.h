// Compares whole training runs of Lockstep and PyTorch, one after the other in each round.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace lockstep::bench {

struct CompareOptions {
  std::vector<std::string> works;  // names of workloads, and "start" and "memory"
  std::string self;                // path of this program; `run NAME` makes it run one workload
  std::string python = "/usr/bin/python3";
};

// {"A": {"pytorch": {"1": samples/s, "2": ...}, "lockstep": {...},
//        "ratio": {"1", "2", "best"}, "scaling"}, ...}.
// Throws Error if the two sides did not reach the same loss and weights.
nlohmann::json compare(const CompareOptions& options);

}  // namespace lockstep::bench
