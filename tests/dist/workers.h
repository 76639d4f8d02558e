// Runs a test's body with dist::launch.
#pragma once

#include <chrono>
#include <functional>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/dist/dist.h"

namespace lockstep::dist {

inline int failed_parts() {
  return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

struct Workers {
  int count = 2;
  std::string backend = "auto";
  bool init = true;  // call init_process_group() before the body
};

// Throws WorkerError if an expectation fails on another rank.
inline void run_workers(const Workers& workers, const std::function<void(int, int)>& body) {
  launch(
      [&](int rank, int world_size) {
        const int before = failed_parts();
        if (workers.init) init_process_group({.rank = rank, .world_size = world_size});
        body(rank, world_size);
        if (rank != 0 && failed_parts() > before) throw Error("an expectation failed, see above");
      },
      {.workers = workers.count, .backend = workers.backend, .timeout = std::chrono::seconds(20)});
}

// The message of the error that the action throws; "" if it throws none.
template <typename E = std::exception, typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep::dist
