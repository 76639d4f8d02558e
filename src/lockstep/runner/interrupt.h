// Ctrl-C and SIGTERM during a run: the batch at work is finished, a checkpoint can be written, and
// then the signal takes its usual course.
#pragma once

#include <csignal>
#include <vector>

namespace lockstep {

// Catches SIGINT and SIGTERM while it lives, where nobody else handles them. A signal that no
// check() has turned into an exception by the guard's end takes its usual course then.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Throws Interrupted once a signal has come. A second one ends the process at once.
  static void check();

 private:
  std::vector<int> caught_;
};

}  // namespace lockstep
