// The page of memory through which lockstep_chaos asks a training process to throw an exception.
// The library throw_hook.cpp, which is preloaded into that process, reads it.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::chaos {

// Names a file that holds a ThrowPage. Both sides map it.
inline constexpr char kThrowPageVariable[] = "CHAOS_THROW_PAGE";

// What the exceptions say.
inline constexpr char kThrownText[] = "chaos: thrown on purpose in the criterion";

struct ThrowPage {
  static constexpr std::int32_t kNobody = 0;
  static constexpr std::int32_t kEverybody = -1;  // every process, every time

  // The process that throws, once: it sets this to kNobody when it does so.
  std::atomic<std::int32_t> pid;
  std::atomic<std::int32_t> lacks_memory;  // 1: throw std::bad_alloc, else std::runtime_error
  std::atomic<std::int32_t> thrown;        // how many times a process has thrown
};
static_assert(std::atomic<std::int32_t>::is_always_lock_free);

}  // namespace lockstep::chaos
