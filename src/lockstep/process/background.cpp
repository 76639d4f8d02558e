#include "lockstep/process/background.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::process {

void enter_background_thread(const char* name) {
  ::pthread_setname_np(::pthread_self(), std::string(name).substr(0, 15).c_str());
  sigset_t signals;
  ::sigfillset(&signals);
  // Signals of a crash must reach the thread that crashed, and profilers sample every thread.
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGPROF}) {
    ::sigdelset(&signals, own);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!fd_) throw Error("cannot create an eventfd: {}", std::strerror(errno));
}

void Wakeup::wake() const {
  const std::uint64_t one = 1;
  // This fails only if 2^64 - 2 wake-ups are pending, and then the descriptor is readable anyway.
  [[maybe_unused]] const auto written = ::write(fd_.get(), &one, sizeof one);
}

void Wakeup::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto read = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace lockstep::process
