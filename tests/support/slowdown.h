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

// Sanitizers take several times the time and memory of the program that is tested.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace lockstep
