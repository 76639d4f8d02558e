// The one place that signals child processes and waits for them.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <string>

#include <sys/types.h>

#include "lockstep/base/file.h"

namespace lockstep::process {

// How a child process ended.
struct ChildEnd {
  int exit_code = 0;
  int signal = 0;  // that killed it; 0: it ended by itself
  // False: the process has ended, but its exit status was taken elsewhere. The program ignores
  // SIGCHLD, or another part of it waits for all of its children.
  bool known = true;

  bool ok() const { return known && exit_code == 0 && signal == 0; }
  // As a shell tells it: the exit code, or 128 + the signal. An unknown end is 1.
  int shell_code() const;
};

// "ended well", "exit code 3", "killed by signal 9 (Killed)", "ended, exit status unknown"
std::string to_string(const ChildEnd& end);

// Owns a child process: only this object waits for it. It uses a pidfd, which cannot mean another
// process that got the same pid later. Where the kernel, a seccomp profile or the limit of open
// files gives none, it asks by the pid, and signals only what is still an unreaped child.
class ChildProcess {
 public:
  // How often to call try_reap() or has_ended() where ended_fd() is -1.
  static constexpr std::chrono::milliseconds kPollInterval{20};

  ChildProcess() = default;
  // `pid` is what fork() has just returned.
  explicit ChildProcess(pid_t pid);
  // A child that was neither reaped nor disowned is killed and reaped.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  // 0 where there is no child: none was given, or it was reaped or disowned.
  pid_t pid() const { return pid_; }
  explicit operator bool() const { return pid_ != 0; }

  // Readable when the child has ended; -1 where that cannot be had.
  int ended_fd() const { return pid_ == 0 ? -1 : pidfd_.get(); }

  // Whether it has ended. It stays a zombie, so that its pid cannot be given to another process,
  // unless the program lets the kernel reap children.
  bool has_ended() const;

  // Both do nothing where the child was reaped.
  void send(int signal) const;
  // To all processes of the group that the child leads. After the child was reaped by somebody
  // else, this needs Linux 6.9: before, the group's number may be another group's.
  void send_to_group(int signal) const;

  // How it ended, once; nothing while it runs.
  std::optional<ChildEnd> try_reap();
  // Waits for its end.
  ChildEnd reap();

  // Leaves it alone: in a process where it is not a child, after another fork().
  void disown();

 private:
  int wait(siginfo_t& info, int flags) const;
  bool is_unreaped() const;

  pid_t pid_ = 0;
  FileDescriptor pidfd_;
};

}  // namespace lockstep::process
