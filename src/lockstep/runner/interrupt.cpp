#include "lockstep/runner/interrupt.h"

#include <cstring>

#include "lockstep/runner/state.h"

namespace lockstep {
namespace {

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t pending_signal = 0;

void remember(int signal_number) {
  pending_signal = signal_number;
  std::signal(signal_number, SIG_DFL);
}

}  // namespace

Interrupted::Interrupted(int signal)
    : Error("interrupted by {}", signal == SIGINT ? "Ctrl-C" : strsignal(signal)),
      signal_number(signal) {}

InterruptGuard::InterruptGuard() {
  for (const int signal_number : {SIGINT, SIGTERM}) {
    struct sigaction current;
    sigaction(signal_number, nullptr, &current);
    if (current.sa_handler != SIG_DFL) continue;
    std::signal(signal_number, remember);
    caught_.push_back(signal_number);
  }
}

InterruptGuard::~InterruptGuard() {
  if (caught_.empty()) return;  // another guard's
  for (const int signal_number : caught_) std::signal(signal_number, SIG_DFL);
  const int pending = pending_signal;
  pending_signal = 0;
  if (pending != 0) std::raise(pending);
}

int InterruptGuard::pending() {
  return pending_signal;
}

void InterruptGuard::take() {
  pending_signal = 0;
}

}  // namespace lockstep
