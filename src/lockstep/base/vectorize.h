// One loop, compiled for several instruction sets. The best one that this machine supports is run.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define LOCKSTEP_HAS_AVX2_CLONE 1
#else
#define LOCKSTEP_HAS_AVX2_CLONE 0
#endif

// For the call operator of a loop, and for the functions it calls.
#define LOCKSTEP_ALWAYS_INLINE __attribute__((always_inline))

namespace lockstep {

// The loop's call operator must be always_inline: only then is its body compiled for AVX2 here.
// AVX-512 and FMA are not used. These loops wait for memory, not for arithmetic, and the compiler
// would use fused multiply-adds. They round differently, so results would depend on the machine.
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
