// Runs a test's body on several ranks. Each rank is a separate process.
#pragma once

#include <chrono>
#include <exception>
#include <functional>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/process/forked_workers.h"

namespace lockstep {

struct RanksOptions {
  int size = 1;
  std::chrono::milliseconds timeout = std::chrono::seconds(20);  // of every collective call
  std::function<bool()> probe = {};  // compute::autograd_works, if the ranks use autograd
};

// The number of expectations of the test that have failed in this process.
inline int failed_expectations() {
  return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

// The caller is rank 0. If another rank throws, or an expectation fails there, this throws
// WorkerError.
inline void run_ranks(const RanksOptions& options,
                      const std::function<void(process::HostGroup&)>& body) {
  process::ForkedWorkers forked(
      {.size = options.size, .timeout = options.timeout, .probe = options.probe},
      [&](process::HostGroup& host_group) {
        const int before = failed_expectations();
        body(host_group);
        if (failed_expectations() > before) throw Error("an expectation failed, see above");
      });
  body(forked.host_group());
  forked.join();
}

inline void run_ranks(int size, const std::function<void(process::HostGroup&)>& body) {
  run_ranks({.size = size}, body);
}

// The message of the error that the ranks throw; "" if they throw none.
inline std::string error_of_ranks(const RanksOptions& options,
                                  const std::function<void(process::HostGroup&)>& body) {
  try {
    run_ranks(options, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep
