#include "lockstep/process/child_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/process/process.h"

namespace lockstep::process {
namespace {

// P_PIDFD of waitid() and PIDFD_SIGNAL_PROCESS_GROUP of pidfd_send_signal(). Older headers do not
// define them.
constexpr auto kPidfd = static_cast<idtype_t>(3);
constexpr unsigned kProcessGroup = 4;

ChildEnd end_of(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return {.exit_code = info.si_status};
  return {.exit_code = 0, .signal = info.si_status};
}

}  // namespace

int ChildEnd::shell_code() const {
  if (!known) return 1;
  return signal != 0 ? 128 + signal : exit_code;
}

std::string to_string(const ChildEnd& end) {
  if (!end.known) return "ended, exit status unknown";
  if (end.signal != 0) {
    return fmt::format("killed by signal {} ({})", end.signal, ::strsignal(end.signal));
  }
  return end.exit_code == 0 ? "ended well" : fmt::format("exit code {}", end.exit_code);
}

ChildProcess::ChildProcess(pid_t pid) : pid_(pid), pidfd_(open_pidfd(pid)) {
  // If another part of the program reaps children, this child may be gone and another process may
  // already have its pid. A process that is not a child of ours is not the one that was forked.
  if (pidfd_ && !is_unreaped()) pidfd_ = FileDescriptor();
}

ChildProcess::~ChildProcess() {
  if (pid_ == 0) return;
  send(SIGKILL);
  reap();
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  return *this;
}

// Calls waitid(); the result is in `info`. The only error is ECHILD: the child was reaped by
// another part of the program.
int ChildProcess::wait(siginfo_t& info, int flags) const {
  const auto wait_by = [&](idtype_t type, int id) {
    int result = 0;
    do {
      info = {};
      result = ::waitid(type, static_cast<id_t>(id), &info, WEXITED | flags);
    } while (result != 0 && errno == EINTR);
    return result;
  };
  if (pidfd_) {
    const int result = wait_by(kPidfd, pidfd_.get());
    if (result == 0 || errno != EINVAL) return result;  // EINVAL: Linux 5.3 has no P_PIDFD
  }
  return wait_by(P_PID, pid_);
}

bool ChildProcess::is_unreaped() const {
  siginfo_t info{};
  return pid_ != 0 && wait(info, WNOHANG | WNOWAIT) == 0;
}

bool ChildProcess::has_ended() const {
  siginfo_t info{};
  return pid_ == 0 || wait(info, WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

void ChildProcess::send(int signal) const {
  if (pid_ == 0) return;
  if (pidfd_ && send_signal(pidfd_, signal)) return;
  if (is_unreaped()) ::kill(pid_, signal);
}

void ChildProcess::send_to_group(int signal) const {
  if (pid_ == 0) return;
  if (pidfd_ && ::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, kProcessGroup) == 0)
    return;
  if (is_unreaped()) ::kill(-pid_, signal);
}

std::optional<ChildEnd> ChildProcess::try_reap() {
  if (pid_ == 0 || !has_ended()) return std::nullopt;
  return reap();
}

ChildEnd ChildProcess::reap() {
  if (pid_ == 0) return {.known = false};
  siginfo_t info{};
  const ChildEnd end = wait(info, 0) == 0 ? end_of(info) : ChildEnd{.known = false};
  disown();
  return end;
}

void ChildProcess::disown() {
  pid_ = 0;
  pidfd_ = FileDescriptor();
}

}  // namespace lockstep::process
