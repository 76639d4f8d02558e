// All signals to child processes and all waits for them go through this class.
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
  int signal = 0;  // the signal that killed it; 0: it ended by itself
  // False: the process has ended, but its exit status is lost, because the program ignores SIGCHLD
  // or another part of the program waits for all children.
  bool known = true;

  bool ok() const { return known && exit_code == 0 && signal == 0; }
  // The code that a shell would report: the exit code, or 128 + the signal. 1 if it is not known.
  int shell_code() const;
};

// "ended well", "exit code 3", "killed by signal 9 (Killed)", "ended, exit status unknown"
std::string to_string(const ChildEnd& end);

// Owns a child process: only this object waits for it. It uses a pidfd, which never refers to a
// later process with the same pid. If it cannot get a pidfd (because of the kernel, a seccomp
// profile or the limit of open files), it uses the pid, and sends signals only while that pid is an
// unreaped child of this process.
class ChildProcess {
 public:
  // How often to call try_reap() or has_ended() if ended_fd() is -1.
  static constexpr std::chrono::milliseconds kPollInterval{20};

  ChildProcess() = default;
  // `pid` is what fork() has just returned.
  explicit ChildProcess(pid_t pid);
  // A child that was neither reaped nor disowned is killed and reaped.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  // 0 if there is no child: none was given, or it was reaped or disowned.
  pid_t pid() const { return pid_; }
  explicit operator bool() const { return pid_ != 0; }

  // Becomes readable when the child has ended. -1 if there is no pidfd.
  int ended_fd() const { return pid_ == 0 ? -1 : pidfd_.get(); }

  // Whether the child has ended. This does not reap it: it stays a zombie, so that no other process
  // can get its pid, unless the program lets the kernel reap children.
  bool has_ended() const;

  // Both functions do nothing after the child was reaped here.
  void send(int signal) const;
  // Sends to all processes of the group that the child leads. If another part of the program has
  // reaped the child, this needs Linux 6.9: on older kernels nothing is sent, because another
  // process group may have the number by then.
  void send_to_group(int signal) const;

  // Reaps the child if it has ended and says how it ended. Nothing while it runs, and after it was
  // reaped.
  std::optional<ChildEnd> try_reap();
  // Waits until the child ends and reaps it.
  ChildEnd reap();

  // Gives up the child without killing it. A process that was forked later calls this, because the
  // child is not its own.
  void disown();

 private:
  int wait(siginfo_t& info, int flags) const;
  bool is_unreaped() const;

  pid_t pid_ = 0;
  FileDescriptor pidfd_;
};

}  // namespace lockstep::process
