// A fork after which autograd works in the child, even if the parent has used autograd.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <thread>

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <torch/version.h>
#include <unistd.h>

namespace lockstep {

// LibTorch 2 starts a thread with the first backward(), and then has a handler that forbids
// autograd in a child of fork(). LibTorch 1.13 has neither, and hangs after a fork without
// handlers.
inline pid_t fork_with_autograd() {
#if TORCH_VERSION_MAJOR >= 2
  return ::_Fork();
#else
  return ::fork();
#endif
}

struct ProcessOptions {
  uid_t user = 0;  // if this process is root's, the other one is this user's
};

// Calls the function, which returns an exit code, in another process.
inline pid_t start_process(const std::function<int()>& work, const ProcessOptions& options = {}) {
  const pid_t process = fork_with_autograd();
  if (process != 0) return process;
  int code = 1;
  if (options.user != 0 && ::getuid() == 0) {
    // Only for this thread and those that it starts. The function of the C library also asks
    // threads that are not in this process.
    if (::syscall(SYS_setresuid, options.user, options.user, options.user) != 0) _exit(code);
    ::prctl(PR_SET_DUMPABLE, 1);  // workers open each other's files in /proc
  }
  std::thread([&] {
    try {
      code = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "the other process: %s\n", error.what());
    }
  }).join();
  _exit(code);
}

}  // namespace lockstep
