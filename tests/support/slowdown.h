// Time limits of tests, and which sanitizers the build has.
#pragma once

#include <cstdlib>

namespace lockstep {

// A time limit, multiplied by LOCKSTEP_TEST_SLOWDOWN. The tests of the sanitizer builds are run
// with that variable, because their programs run slower.
template <typename Duration>
Duration scaled(Duration limit) {
  const char* factor = std::getenv("LOCKSTEP_TEST_SLOWDOWN");
  return factor ? limit * std::atoi(factor) : limit;
}

// Tests use these constants to skip what a build with sanitizers cannot test. Programs with
// sanitizers need several times the time and memory. ThreadSanitizer also gives up ("dup thread
// with used id") if a process starts a thread after it was forked from a process with running
// threads.
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
