// The other workers of this host. The calling process forks and watches them. They end when it is
// done with them or dies.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep/base/error.h"
#include "lockstep/process/host_group.h"
#include "lockstep/process/worker_template.h"

namespace lockstep::process {

struct ForkedWorkersOptions {
  int size = 1;        // number of ranks in the group, including this process
  int first_rank = 0;  // this process's rank in messages; the workers' ranks follow it
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for other ranks
  // Called in each worker: returns whether it can work after the fork. It tries what may not
  // survive a fork.
  std::function<bool()> probe = {};
  // Receives each line that a worker prints, and the worker's rank as messages show it. It is
  // called in a thread of this process and must not throw. If it is empty, workers share this
  // process's output.
  std::function<void(int rank, const std::string& line)> on_line = {};
  // The caller makes workers anew after a failure: the supervisor reports a failure only to the
  // group, prints nothing, and end_on_failure() does not apply. A caller that is stopped or hangs
  // after a failure is still ended, as always.
  bool recovers = false;
  // Forks the workers if it is alive; they then run the template's `work`. If it is lost, the
  // caller forks them. It must outlive this object.
  WorkerTemplate* worker_template = nullptr;
};

// There can be fewer workers than wanted: the number of processes or open files is limited, or
// there is not enough memory.
class ForkError : public WorkerError {
 public:
  ForkError(int possible, const std::string& message) : WorkerError(message), possible_(possible) {}

  // The number of ranks for which there was room, including the caller.
  int possible() const { return possible_; }

 private:
  int possible_;
};

// For a program that has nothing to clean up. If a worker fails while the caller is in a long
// batch, this process ends with `code` within two seconds of the failure. Without this call, the
// caller gets the failure in its next collective call, or this process is ended after the time
// limit.
void end_on_failure(int code);

// The caller is rank 0 of the group. Each other rank is a process that runs `work` in a new thread
// (OpenMP's threads do not survive in the thread that forked) and then ends. What `work` throws
// becomes the group's failure.
//
// The kernel kills a worker when the process that forked it dies, however that happens, and also
// when the thread that forked it ends: that thread must outlive this object. If a worker dies
// before it is done, the group fails and the error names the worker. When the group fails, workers
// that do not end by themselves are killed.
class ForkedWorkers {
 public:
  // Throws WorkerError if the workers cannot be forked. The message says how many, and why. It is a
  // ForkError if there can be fewer workers.
  ForkedWorkers(const ForkedWorkersOptions& options, const std::function<void(HostGroup&)>& work);
  // Kills and reaps the workers that are left.
  ~ForkedWorkers();
  ForkedWorkers(const ForkedWorkers&) = delete;
  ForkedWorkers& operator=(const ForkedWorkers&) = delete;

  HostGroup& host_group() { return *host_group_; }

  // Kills and reaps the workers that are left, at once. What they printed is still passed on. The
  // group stays, so its failure can be read.
  void end_now();

  // This rank is done: waits until all workers have ended. Throws WorkerError if the group failed
  // or a worker does not end within the time limit.
  void join();

 private:
  class Supervisor;

  enum class ForkWay { kTemplate, kFork, kBareFork };
  // False if workers that are forked in this way cannot work.
  bool start(const ForkedWorkersOptions& options, const std::function<void(HostGroup&)>& work,
             ForkWay way);

  std::unique_ptr<HostGroup> host_group_;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace lockstep::process
