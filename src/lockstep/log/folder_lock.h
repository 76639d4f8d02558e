// The right of one process to write to a folder.
#pragma once

#include <filesystem>

#include "lockstep/base/file.h"

namespace lockstep {

// Held from construction to destruction. The kernel releases it when the process dies in any other
// way, so a run that was killed can be resumed at once. The lock is a file in the folder, `.lock`,
// with the process that has it; it is removed at the end.
class FolderLock {
 public:
  // Throws Error naming the process, its host and its time where the folder is locked already. A
  // process that is about to die gets one second to do so. Where the file system has no locks (some
  // network ones), this warns and goes on without.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::filesystem::path path_;
  FileDescriptor fd_;  // none where there are no locks
  pid_t owner_;        // a forked child is not
};

}  // namespace lockstep
