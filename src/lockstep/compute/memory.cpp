#include "lockstep/compute/memory.h"

#include <climits>

#if defined(__GLIBC__) || __has_include(<malloc.h>)
#include <malloc.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <ATen/Parallel.h>

#include "lockstep/compute/parallel.h"
#include "lockstep/compute/switches.h"

namespace lockstep::compute {

void keep_memory() {
#if defined(M_MMAP_THRESHOLD) && defined(M_TRIM_THRESHOLD)
  if (!is_enabled(Speedup::kMemory)) return;
  constexpr int kTopPad = 16 << 20;  // requested from the kernel at a time
  // glibc before 2.35 accepts at most 32 MiB. If it refuses that, too, its settings are not
  // changed.
  if (::mallopt(M_MMAP_THRESHOLD, 1 << 30) == 0 && ::mallopt(M_MMAP_THRESHOLD, 32 << 20) == 0) {
    return;
  }
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, kTopPad);
#endif
}

#if defined(__SSE2__)

namespace {

// Sets the mode in this thread and in those of the LibTorch operations that it starts.
void set_in_all_threads(unsigned mode) {
  for_ranges({.size = at::get_num_threads()},
             [=](std::int64_t, std::int64_t) { _mm_setcsr(mode); });
  _mm_setcsr(mode);
}

}  // namespace

FlushDenormals::FlushDenormals() : previous_(_mm_getcsr()) {
  constexpr unsigned kFlushToZero = 1U << 15;
  constexpr unsigned kDenormalsAreZero = 1U << 6;
  if (!is_enabled(Speedup::kDenormals)) return;
  set_in_all_threads(previous_ | kFlushToZero | kDenormalsAreZero);
}

FlushDenormals::~FlushDenormals() {
  if (_mm_getcsr() != previous_) set_in_all_threads(previous_);
}

#else

FlushDenormals::FlushDenormals() = default;
FlushDenormals::~FlushDenormals() = default;

#endif

}  // namespace lockstep::compute
