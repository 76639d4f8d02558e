// The other workers of this host: forked from the process that wants them, watched by it, and gone
// when it is done with them or dies itself.
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
  int size = 1;        // of the group, this process included
  int first_rank = 0;  // what messages call rank 0, where there are more hosts; others follow
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for others
  // Whether work is possible in the process that calls it: what must survive a fork is tried here.
  std::function<bool()> probe;
  // Lines that a worker prints are handed to this, with what messages call it, in a thread of this
  // process; where it is empty, workers share this process's output. It must not throw.
  std::function<void(int rank, const std::string& line)> on_line;
};

// For a program that has nothing to put away: when a group fails and its caller does not get to
// know it at once, being in a long batch, this process ends with `code` within two seconds of the
// failure. Otherwise the caller meets the failure where it next meets the others, or is ended after
// the time limit.
void end_on_failure(int code);

// The caller is rank 0 of the group. Each other rank runs `work` in a thread of its own (OpenMP's
// threads do not survive in the thread that forked) and its process ends after it. What `work`
// throws becomes the group's failure.
//
// A worker dies with the process that made it, whatever killed that, and with the thread that did:
// it must outlive this object. When a worker dies before it is done, the group fails and
// names it. When the group fails, workers that do not end by themselves are killed.
class ForkedWorkers {
 public:
  // Throws WorkerError where no worker can be made: how many, and why.
  ForkedWorkers(const ForkedWorkersOptions& options, const std::function<void(HostGroup&)>& work);
  // Kills and reaps whoever is left.
  ~ForkedWorkers();
  ForkedWorkers(const ForkedWorkers&) = delete;
  ForkedWorkers& operator=(const ForkedWorkers&) = delete;

  HostGroup& host_group() { return *host_group_; }

  // This rank is done: waits until all workers are gone. Throws WorkerError where the group failed,
  // and where a worker does not end within the time limit.
  void join();

 private:
  class Supervisor;

  // False where workers cannot work, forked like that.
  bool start(const ForkedWorkersOptions& options, const std::function<void(HostGroup&)>& work,
             bool bare);

  std::unique_ptr<HostGroup> host_group_;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace lockstep::process
