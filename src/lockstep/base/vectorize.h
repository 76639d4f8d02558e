// One loop, compiled for several instruction sets; the best that this machine has is run.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define LOCKSTEP_HAS_AVX2_CLONE 1
#else
#define LOCKSTEP_HAS_AVX2_CLONE 0
#endif

// For the call operator of a loop, and what it calls.
#define LOCKSTEP_ALWAYS_INLINE __attribute__((always_inline))

namespace lockstep {

// The loop's call operator must be always_inline: only then is its body compiled anew in here.
// AVX2 and no more: these loops wait for memory, not for arithmetic, and AVX-512 or FMA would bring
// fused multiply-adds, whose other rounding would make the bits depend on the machine.
#if LOCKSTEP_HAS_AVX2_CLONE
template <typename Loop, typename Range>
__attribute__((target("avx2"))) void run_avx2(const Loop& loop, const Range& range) {
  loop(range);
}
#endif

template <typename Loop, typename Range>
void run_best(const Loop& loop, const Range& range) {
#if LOCKSTEP_HAS_AVX2_CLONE
  if (__builtin_cpu_supports("avx2")) return run_avx2(loop, range);
#endif
  loop(range);
}

}  // namespace lockstep
