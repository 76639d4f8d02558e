// How much memory LibTorch's allocator of the CPU hands out at most while something runs. Memory
// that libraries allocate by themselves is not counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

class AllocationCounter : public c10::MemoryReportingInfoBase {
 public:
  // LibTorch calls one of these two: the types of the totals depend on its version.
  void reportMemoryUsage(void*, std::int64_t bytes, std::int64_t, std::int64_t, c10::Device) {
    count(bytes);
  }
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) {
    count(bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t peak() const { return peak_; }

 private:
  void count(std::int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }

  std::int64_t now_ = 0;
  std::int64_t peak_ = 0;
};

// The bytes above those that are in use at the start.
template <typename Action>
std::int64_t allocated_peak_of(const Action& action) {
  const auto counter = std::make_shared<AllocationCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  action();
  return counter->peak();
}

}  // namespace lockstep
