// Lets processes of one host and user that were started separately find each other without a port:
// one process announces a line of text under a name, and the other processes read it. The name is
// in Linux's abstract socket namespace: it is not in the file system, and it ends with the process.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/process/background.h"

namespace lockstep::rendezvous {

// Sends the text to processes of the same user that ask for it. A background thread does this until
// the destructor.
class Announcement {
 public:
  // Throws CommError if the name is already in use.
  Announcement(const std::string& name, std::string text);
  ~Announcement();
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

 private:
  FileDescriptor listening_;
  process::Wakeup ending_;
  std::thread thread_;
};

// Waits until a process announces the name, and returns the text. Throws CommError at the timeout,
// with the name and the time waited, and if a process of another user has the name.
std::string read_announcement(const std::string& name, std::chrono::milliseconds timeout);

}  // namespace lockstep::rendezvous
