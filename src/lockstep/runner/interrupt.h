// Ctrl-C and SIGTERM during a run: the batch at work is finished, a checkpoint can be written, and
// then the signal takes its usual course.
#pragma once

#include <csignal>
#include <vector>

namespace lockstep {

// Catches SIGINT and SIGTERM while it lives, where nobody else handles them. A signal that
// nobody has taken by the guard's end takes its usual course then.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that has come and waits to be taken, or 0. A second one ends the process at once.
  static int pending();
  static void take();

 private:
  std::vector<int> caught_;
};

}  // namespace lockstep
