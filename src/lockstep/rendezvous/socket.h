// TCP sockets as the ranks of a run use them: non-blocking, closed on exec, without Nagle's delay.
#pragma once

#include <chrono>
#include <string>

#include "lockstep/base/file.h"

namespace lockstep::rendezvous {

using Clock = std::chrono::steady_clock;

struct Endpoint {
  std::string address = "127.0.0.1";  // a name or an IP, v4 or v6
  int port = 0;                       // 0, where one listens: any that is free
};

// "127.0.0.1:4711", "[::1]:4711"
std::string to_string(const Endpoint& endpoint);

// Listens on exactly this address, the first that its name has; "*" is every interface, IPv4 and
// IPv6. Throws CommError.
FileDescriptor listen_on(const Endpoint& endpoint);

// Keeps a port from being given to anybody else until a program listens there itself: bound, but
// not listening, so that a socket with SO_REUSEADDR may listen on the same port. Throws CommError.
FileDescriptor reserve_port(const Endpoint& endpoint);

// The port a socket is bound to.
int local_port(const FileDescriptor& socket);

// The two ends of a connection, as numbers: "10.0.0.1". Empty where they cannot be told.
std::string local_address(const FileDescriptor& socket);
std::string peer_address(const FileDescriptor& socket);

// The next connection that waits, if there is one; an empty descriptor otherwise, errno says why.
FileDescriptor accept_from(const FileDescriptor& listener);

// One attempt at each of the name's addresses. Throws CommError with the cause of the last.
FileDescriptor connect_to(const Endpoint& endpoint, Clock::time_point deadline);

// Waits for poll()'s `events` or an end of the connection. False at the deadline.
bool wait_for(const FileDescriptor& socket, short events, Clock::time_point deadline);

// From now on; at most a year, so that "for ever" has no overflow.
Clock::time_point deadline_in(std::chrono::milliseconds timeout);

// What poll() takes: rounded up, so that a wait for less than a millisecond does not spin.
int milliseconds_until(Clock::time_point deadline);

}  // namespace lockstep::rendezvous
