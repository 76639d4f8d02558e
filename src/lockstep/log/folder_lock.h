// The right of one process to write to a folder.
#pragma once

#include <filesystem>

#include "lockstep/base/file.h"

namespace lockstep {

// Held from construction to destruction. The kernel also releases it when the process dies, so a
// run that was killed can be resumed at once. The lock is a file in the folder, `.lock`, which
// names the process that holds it. The destructor removes the file.
class FolderLock {
 public:
  // Throws Error, which names the process, its host and its start time, if another process holds
  // the lock. It waits one second first, because that process may just be dying. If the file system
  // has no locks (some network file systems), it warns and continues without a lock.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;  // none if the file system has no locks
  pid_t owner_;        // the process that locked; a forked child must not remove the file
};

}  // namespace lockstep
