// Ctrl-C and SIGTERM during a run: the batch at work is finished, a checkpoint can be written, and
// then the signal takes its usual course.
#pragma once

#include <vector>

namespace lockstep::process {

// Catches SIGINT and SIGTERM while it lives, where nobody else handles them. A signal that
// nobody has taken by the guard's end takes its usual course then.
//
// A signal to a whole group of processes reaches one of them first, and that one tells the others.
// Who has taken the interruption from another is therefore still caught when its own signal comes
// late, also after the guard's end, until release().
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that has come and waits to be taken, or 0. A second one ends the process at once.
  static int pending();
  static void take();
  // After a run whose interruption was taken: signals do again what they do without a guard.
  static void release();

  // For a process that another one made and ends: no number of signals does more than wait here.
  static void catch_for_good();

 private:
  std::vector<int> caught_;
};

}  // namespace lockstep::process
