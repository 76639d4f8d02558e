#include "lockstep/compute/memory.h"

#include <climits>

#if defined(__GLIBC__) || __has_include(<malloc.h>)
#include <malloc.h>
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "lockstep/compute/switches.h"

namespace lockstep::compute {

void keep_memory() {
#if defined(M_MMAP_THRESHOLD) && defined(M_TRIM_THRESHOLD)
  if (!is_enabled(Speedup::kMemory)) return;
  constexpr int kTopPad = 16 << 20;  // asked for at a time
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, kTopPad);
#endif
}

#if defined(__SSE2__)

FlushDenormals::FlushDenormals() : previous_(_mm_getcsr()) {
  constexpr unsigned kFlushToZero = 1U << 15;
  constexpr unsigned kDenormalsAreZero = 1U << 6;
  if (is_enabled(Speedup::kDenormals)) _mm_setcsr(previous_ | kFlushToZero | kDenormalsAreZero);
}

FlushDenormals::~FlushDenormals() {
  _mm_setcsr(previous_);
}

#else

FlushDenormals::FlushDenormals() = default;
FlushDenormals::~FlushDenormals() = default;

#endif

}  // namespace lockstep::compute
