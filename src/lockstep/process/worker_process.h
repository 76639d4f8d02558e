// What a forked worker's process does, from the fork to its end.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include <sys/types.h>

#include "lockstep/base/file.h"
#include "lockstep/process/host_group.h"

namespace lockstep::process {

// Writes out what this process has printed. Called before a fork, because otherwise each child
// would print the buffered text again.
void flush_output();

// Starts a thread. Throws WorkerError if the system refuses it.
std::thread start_thread(const std::function<void()>& body);

// As fork(). `bare`: as glibc's _Fork(), which does not call the handlers that libraries have
// registered for a fork, and does not release the locks of malloc.
pid_t fork_process(bool bare);

// Called in a child: it is killed when the thread that forked it ends, and ends at once if that
// process, `parent`, has died before.
void die_with_parent(pid_t parent);

// The worker's process needs these after the fork. They are made before it, so that an error is
// thrown in the process that forks.
struct WorkerStart {
  HostGroup& host_group;  // the worker's own view
  // Whether this process can work, see ForkedWorkersOptions. Empty: it can.
  const std::function<bool()>& probe;
  const std::function<void(HostGroup&)>& work;
  pid_t caller = 0;  // rank 0
};

// Runs a worker's process to its end. The worker prints to `output` if there is one. It must not
// return or throw: the stack frames below are copies of the caller's, with the caller's catch
// blocks and destructors.
[[noreturn]] void run_worker_process(const WorkerStart& start, FileDescriptor output) noexcept;

// Time from the failure of a group until workers that have not ended are killed, and until a
// stopped caller is killed.
inline constexpr std::chrono::milliseconds kGracePeriod(1000);
// Time for a worker to start.
inline constexpr std::chrono::milliseconds kStartTimeout(20'000);

}  // namespace lockstep::process
