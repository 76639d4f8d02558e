// A fork after which autograd works in the child, even if the parent has used autograd.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <thread>

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

// Calls the function, which returns an exit code, in another process.
inline pid_t start_process(const std::function<int()>& work) {
  const pid_t process = fork_with_autograd();
  if (process != 0) return process;
  int code = 1;
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
