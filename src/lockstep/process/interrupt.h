// Ctrl-C and SIGTERM during a run: the current batch is finished, a checkpoint can be written, and
// then the signal has its usual effect.
#pragma once

#include <chrono>
#include <vector>

namespace lockstep::process {

// Catches SIGINT and SIGTERM from its constructor to its destructor, unless the program handles
// them already. If a signal is still pending in the destructor, it has its usual effect then.
//
// A signal to a whole group of processes reaches one of them first, and that rank tells the other
// ranks. Each of them calls take() and then keeps its handler until release(), also after the
// destructor: its own signal may arrive later and must not kill it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // The signal that has arrived and was not taken yet, or 0. A second signal of the same kind ends
  // the process at once.
  static int pending();
  // How long ago it arrived.
  static std::chrono::nanoseconds pending_for();
  // The run handles the interruption: no signal is pending any more.
  static void take();
  // Called after a run that called take(): signals have their usual effect again.
  static void release();

  // For a worker process that its parent ends: signals only become pending here, however many come.
  static void catch_for_good();
  // The pending signal has its usual effect now: it ends the process.
  [[noreturn]] static void die_of_pending();

 private:
  std::vector<int> caught_;
};

}  // namespace lockstep::process
