// Time limits of tests, and what a build with sanitizers cannot measure.
#pragma once

#include <cstdlib>

namespace lockstep {

// A time limit, made longer where programs run slower than usual: the sanitizer builds' tests are
// run with LOCKSTEP_TEST_SLOWDOWN.
template <typename Duration>
Duration scaled(Duration limit) {
  const char* factor = std::getenv("LOCKSTEP_TEST_SLOWDOWN");
  return factor ? limit * std::atoi(factor) : limit;
}

// What a build with sanitizers cannot test is skipped by them. Sanitizers take several times the
// time and memory of the program; ThreadSanitizer also gives up ("dup thread with used id") where a
// process that was forked beside a running thread starts a thread of its own.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif
#ifdef __SANITIZE_THREAD__
inline constexpr bool kHasThreadSanitizer = true;
#else
inline constexpr bool kHasThreadSanitizer = false;
#endif

}  // namespace lockstep
