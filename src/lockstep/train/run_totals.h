// What a run counts over all of its attempts.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

struct RunTotals {
  std::int64_t epochs_before = 0;  // finished before a resume
  std::int64_t steps_before = 0;   // made before a resume
  double train_seconds = 0;
  std::int64_t train_samples = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

}  // namespace lockstep
