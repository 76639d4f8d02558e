#include "lockstep/process/interrupt.h"

#include <atomic>
#include <csignal>
#include <cstdint>

#include <time.h>
#include <unistd.h>

namespace lockstep::process {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

// A signal handler can only use global variables.
volatile std::sig_atomic_t pending_signal = 0;

// When it arrived, in nanoseconds. It is global for the same reason.
std::atomic<std::int64_t> arrived = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

// Whether take() was called and release() was not. It is global as the handlers are: they belong to
// the process, and they stay after the guard that installed them.
bool taken = false;

// A signal handler may call clock_gettime().
std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void remember(int signal_number) {
  arrived = now();
  pending_signal = signal_number;
}

void remember_once(int signal_number) {
  remember(signal_number);
  std::signal(signal_number, SIG_DFL);
}

bool is_handled_by(void (*handler)(int), int signal_number) {
  struct sigaction current;
  sigaction(signal_number, nullptr, &current);
  return current.sa_handler == handler;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  for (const int signal_number : kSignals) {
    if (!is_handled_by(SIG_DFL, signal_number)) continue;  // the user or another guard handles it
    std::signal(signal_number, remember_once);
    caught_.push_back(signal_number);
  }
}

InterruptGuard::~InterruptGuard() {
  if (caught_.empty() || taken) return;
  for (const int signal_number : caught_) std::signal(signal_number, SIG_DFL);
  const int pending = pending_signal;
  pending_signal = 0;
  if (pending != 0) std::raise(pending);
}

int InterruptGuard::pending() {
  return pending_signal;
}

std::chrono::nanoseconds InterruptGuard::pending_for() {
  return std::chrono::nanoseconds(now() - arrived);
}

void InterruptGuard::take() {
  pending_signal = 0;
  taken = true;
}

void InterruptGuard::release() {
  if (!taken) return;
  for (const int signal_number : kSignals) {
    if (is_handled_by(remember_once, signal_number)) std::signal(signal_number, SIG_DFL);
  }
  pending_signal = 0;
  taken = false;
}

void InterruptGuard::catch_for_good() {
  for (const int signal_number : kSignals) {
    if (is_handled_by(SIG_DFL, signal_number)) std::signal(signal_number, remember);
  }
}

void InterruptGuard::die_of_pending() {
  const int signal_number = pending_signal;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
  ::_exit(128 + signal_number);  // the signal is blocked
}

}  // namespace lockstep::process
