#include "lockstep/launcher/signals.h"

#include <cerrno>
#include <cstring>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launcher {

Signals::Signals() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&wanted, signal);
  fd_ = FileDescriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  // Checked before the signals are blocked: a launcher that cannot read them must die of them.
  if (!fd_) throw WorkerError("cannot create a signalfd: {}", std::strerror(errno));
  ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
}

Signals::~Signals() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::take() const {
  signalfd_siginfo info{};
  return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                              : 0;
}

int Signals::wait(std::chrono::milliseconds time) const {
  const auto deadline = rendezvous::deadline_in(time);
  rendezvous::wait_for(fd_, POLLIN, deadline);
  return take();
}

}  // namespace lockstep::launcher
