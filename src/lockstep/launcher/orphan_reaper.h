// Ends the process groups of programs when the process that started them is gone, however it died:
// a parent-death signal reaches a child, not the child's own children.
#pragma once

#include <sys/types.h>

#include "lockstep/base/file.h"
#include "lockstep/process/child_process.h"

namespace lockstep::launcher {

class OrphanReaper {
 public:
  // Forks the process that keeps watch. Throws Error where that cannot be.
  OrphanReaper();
  // Ends it, and with it every group that is still watched.
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
