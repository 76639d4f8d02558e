// Helpers for the library's background threads.
#pragma once

#include "lockstep/base/file.h"

namespace lockstep::process {

// Names the calling thread and blocks signals from outside in it, so that the program's other
// threads handle Ctrl-C as they did before this thread was started. At most 15 characters of `name`
// are shown.
void enter_background_thread(const char* name);

// Ends another thread's poll(): it has a descriptor that is readable from wake() until clear().
class Wakeup {
 public:
  Wakeup();

  int fd() const { return fd_.get(); }
  void wake() const;
  void clear() const;

 private:
  FileDescriptor fd_;
};

}  // namespace lockstep::process
