// TCP sockets as the ranks of a run use them: non-blocking, closed on exec, without Nagle's delay.
#pragma once

#include <chrono>
#include <string>

#include "lockstep/base/file.h"

namespace lockstep::rendezvous {

using Clock = std::chrono::steady_clock;

struct Endpoint {
  std::string address = "127.0.0.1";  // a name or an IP, v4 or v6
  int port = 0;                       // 0 means any free port, for a socket that listens
};

// "127.0.0.1:4711", "[::1]:4711"
std::string to_string(const Endpoint& endpoint);

// Listens only on this address; of a name, on its first address. "*" is every interface, IPv4 and
// IPv6. Throws CommError.
FileDescriptor listen_on(const Endpoint& endpoint);

// Reserves a port until a program listens there itself: the kernel gives it to no other process.
// The socket is bound but does not listen, so a socket with SO_REUSEADDR can listen on the same
// port. Throws CommError.
FileDescriptor reserve_port(const Endpoint& endpoint);

// The port a socket is bound to.
int local_port(const FileDescriptor& socket);

// The addresses of the two ends of a connection, as numbers: "10.0.0.1". "" if they are not known.
std::string local_address(const FileDescriptor& socket);
std::string peer_address(const FileDescriptor& socket);

// The next connection that waits to be accepted. If there is none, an empty descriptor; errno says
// why.
FileDescriptor accept_from(const FileDescriptor& listener);

// Tries each address of the name once. Throws CommError with the cause of the last failure.
FileDescriptor connect_to(const Endpoint& endpoint, Clock::time_point deadline);

// Waits for poll()'s `events` or the end of the connection. False at the deadline.
bool wait_for(const FileDescriptor& socket, short events, Clock::time_point deadline);

// The time point `timeout` from now; at most a year from now, so that a huge timeout cannot
// overflow.
Clock::time_point deadline_in(std::chrono::milliseconds timeout);

// The timeout for poll(). It is rounded up, so that a wait for less than a millisecond does not
// spin.
int milliseconds_until(Clock::time_point deadline);

}  // namespace lockstep::rendezvous
