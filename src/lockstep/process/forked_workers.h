// The other workers of this host. The calling process forks and watches them. They end when it is
// done with them or dies.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep/process/host_group.h"

namespace lockstep::process {

struct ForkedWorkersOptions {
  int size = 1;        // number of ranks in the group, including this process
  int first_rank = 0;  // this process's rank in messages; the workers' ranks follow it
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for other ranks
  // Called in each worker: returns whether it can work after the fork. It tries what may not
  // survive a fork.
  std::function<bool()> probe;
  // Receives each line that a worker prints, and the worker's rank as messages show it. It is
  // called in a thread of this process and must not throw. If it is empty, workers share this
  // process's output.
  std::function<void(int rank, const std::string& line)> on_line;
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
  // Throws WorkerError if the workers cannot be forked. The message says how many, and why.
  ForkedWorkers(const ForkedWorkersOptions& options, const std::function<void(HostGroup&)>& work);
  // Kills and reaps the workers that are left.
  ~ForkedWorkers();
  ForkedWorkers(const ForkedWorkers&) = delete;
  ForkedWorkers& operator=(const ForkedWorkers&) = delete;

  HostGroup& host_group() { return *host_group_; }

  // This rank is done: waits until all workers have ended. Throws WorkerError if the group failed
  // or a worker does not end within the time limit.
  void join();

 private:
  class Supervisor;

  // False if workers that are forked in this way (`bare`: with _Fork()) cannot work.
  bool start(const ForkedWorkersOptions& options, const std::function<void(HostGroup&)>& work,
             bool bare);

  std::unique_ptr<HostGroup> host_group_;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace lockstep::process
