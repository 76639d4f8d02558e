// What a thread in the background needs to be a quiet guest of the process.
#pragma once

#include "lockstep/base/file.h"

namespace lockstep::process {

// Names the calling thread and leaves signals that come from outside to the others, so that ctrl-C
// is handled where it was before there was this thread. At most 15 characters of `name` are shown.
void enter_background_thread(const char* name);

// Ends another thread's poll(): a descriptor that is readable from wake() to clear().
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
