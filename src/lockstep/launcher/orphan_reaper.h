// Kills the process groups of programs when the process that started them has ended, however it
// died. A parent-death signal is not enough: it reaches a child, but not the child's own children.
#pragma once

#include <sys/types.h>

#include "lockstep/base/file.h"
#include "lockstep/process/child_process.h"

namespace lockstep::launcher {

class OrphanReaper {
 public:
  // Forks the process that watches. Throws Error if it cannot be forked.
  OrphanReaper();
  // Ends that process, which first kills every group that is still watched.
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  void watch(pid_t group);
  void forget(pid_t group);

 private:
  void tell(pid_t message) const;

  process::ChildProcess process_;
  FileDescriptor pipe_;
};

}  // namespace lockstep::launcher
