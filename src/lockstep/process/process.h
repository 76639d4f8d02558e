// What the kernel knows about a process of this host.
#pragma once

#include <cstdint>
#include <optional>

#include <sys/types.h>

#include "lockstep/base/file.h"

namespace lockstep::process {

struct ProcessStatus {
  // The state letter of /proc/PID/stat: 'T' is stopped by a signal, 'Z' is ended but not reaped.
  char state = '?';
  // In clock ticks since the host's boot. It tells apart two processes that had the same pid.
  std::uint64_t start_time = 0;
};

// Nothing if there is no such process, or if /proc cannot be read.
std::optional<ProcessStatus> process_status(pid_t pid);

// A descriptor of the process that has this pid now; it never refers to a later process with the
// same pid. Empty if the kernel gives none. Then errno says why: ESRCH (no such process), ENOSYS
// (Linux before 5.3), EPERM (a seccomp profile that does not know the call), EMFILE.
FileDescriptor open_pidfd(pid_t pid);

// Whether the descriptor's process has ended.
bool has_ended(const FileDescriptor& pidfd);

// Sends a signal to the descriptor's process. False if it cannot be sent; errno says why.
bool send_signal(const FileDescriptor& pidfd, int signal);

// Gives this process a name that `ps`, `top` and `pgrep` show: the first 15 characters as the name
// of the calling thread, and all of it as the first word of the command line, before the words that
// the program was started with. Call it in a process that was just forked. It allocates no memory
// with malloc. If the kernel does not allow it, the process keeps its name.
void set_process_name(const char* name);

// Another process of this host, which is not a child of this one.
class PeerProcess {
 public:
  // `start_time` is what process_status() says about the process; 0 if that is not known.
  explicit PeerProcess(pid_t pid, std::uint64_t start_time = 0);

  // Without a pidfd and without /proc, a process that its parent has not reaped yet counts as
  // running.
  bool has_ended() const;

  // Whether a signal has stopped it (SIGSTOP, Ctrl-Z). A debugger's stop does not count.
  bool is_stopped() const;

  // Does nothing if the process has ended.
  void send(int signal) const;

 private:
  bool is_same(const ProcessStatus& status) const;

  pid_t pid_;
  std::uint64_t start_time_;
  FileDescriptor pidfd_;
  bool was_gone_ = false;  // the process had already ended when this object was created
};

}  // namespace lockstep::process
