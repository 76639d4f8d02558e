#include "lockstep/process/process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::process {

std::optional<ProcessStatus> process_status(pid_t pid) {
  const std::string path = fmt::format("/proc/{}/stat", pid);
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  char bytes[1024] = {};
  const std::size_t length = std::fread(bytes, 1, sizeof bytes - 1, file);
  std::fclose(file);
  // The second field is the program's name in parentheses, which may contain any character. The
  // third is the state, the twenty-second the start time.
  const std::string_view text(bytes, length);
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string_view::npos) return std::nullopt;
  ProcessStatus status;
  unsigned long long start_time = 0;
  if (std::sscanf(bytes + end_of_name + 1,
                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                  "%llu",
                  &status.state, &start_time) != 2) {
    return std::nullopt;
  }
  status.start_time = start_time;
  return status;
}

FileDescriptor open_pidfd(pid_t pid) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(const FileDescriptor& pidfd) {
  pollfd look{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&look, 1, 0) == 1;
}

bool send_signal(const FileDescriptor& pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

PeerProcess::PeerProcess(pid_t pid, std::uint64_t start_time)
    : pid_(pid), start_time_(start_time), pidfd_(open_pidfd(pid)) {
  was_gone_ = !pidfd_ && errno == ESRCH;
  // Another process may have got the pid before this object was made.
  const auto status = process_status(pid);
  if (status && !is_same(*status)) was_gone_ = true;
}

bool PeerProcess::is_same(const ProcessStatus& status) const {
  return start_time_ == 0 || status.start_time == start_time_;
}

bool PeerProcess::has_ended() const {
  if (was_gone_) return true;
  if (pidfd_) return process::has_ended(pidfd_);
  if (const auto status = process_status(pid_)) {
    return status->state == 'Z' || status->state == 'X' || !is_same(*status);
  }
  return ::kill(pid_, 0) != 0 && errno == ESRCH;
}

bool PeerProcess::is_stopped() const {
  const auto status = process_status(pid_);
  return !was_gone_ && status && is_same(*status) && status->state == 'T';
}

void PeerProcess::send(int signal) const {
  if (has_ended()) return;
  if (pidfd_ && send_signal(pidfd_, signal)) return;
  // The kernel or a seccomp profile does not allow the pidfd calls. kill() is safe enough: the
  // process was alive a moment ago.
  if (!pidfd_ || errno == ENOSYS || errno == EPERM) ::kill(pid_, signal);
}

}  // namespace lockstep::process
