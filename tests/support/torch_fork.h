// A fork after which autograd works in the child, even if the parent has used autograd.
#pragma once

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

}  // namespace lockstep
