// How processes of one host and user that were started apart find each other without a port: one
// announces a line of text under a name, the others read it. The name is of Linux's abstract socket
// namespace: nothing in the file system, gone with the process.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/process/background.h"

namespace lockstep::rendezvous {

// Answers while it lives, in a thread of its own, to processes of the same user.
class Announcement {
 public:
  // Throws CommError where the name is taken.
  Announcement(const std::string& name, std::string text);
  ~Announcement();
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

 private:
  FileDescriptor listening_;
  process::Wakeup ending_;
  std::thread thread_;
};

// Waits for somebody to announce. Throws CommError with the name and the time waited, and where
// another user's process has the name.
std::string read_announcement(const std::string& name, std::chrono::milliseconds timeout);

}  // namespace lockstep::rendezvous
