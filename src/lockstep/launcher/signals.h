// SIGINT, SIGTERM and SIGHUP as something to wait for.
#pragma once

#include <chrono>
#include <csignal>

#include "lockstep/base/file.h"

namespace lockstep::launcher {

// Makes SIGINT, SIGTERM and SIGHUP readable from a descriptor until the destructor. The signals are
// blocked in the thread that made this object, so it must be the only one that does not block them.
class Signals {
 public:
  // Throws WorkerError with the cause.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }
  // The next signal, or 0 if there is none.
  int take() const;
  // Waits for a signal. 0 at the end of the time.
  int wait(std::chrono::milliseconds time) const;

 private:
  sigset_t before_{};
  FileDescriptor fd_;
};

}  // namespace lockstep::launcher
