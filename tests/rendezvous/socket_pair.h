// Two sockets that are connected to each other.
#pragma once

#include <utility>

#include <sys/socket.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep::rendezvous {

inline std::pair<FileDescriptor, FileDescriptor> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error("cannot make a pair of sockets");
  }
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

}  // namespace lockstep::rendezvous
