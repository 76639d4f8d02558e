#include "lockstep/rendezvous/socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// A host that lost power or its cable sends nothing. The kernel detects that after about this time.
constexpr int kHostLostSeconds = 30;

// The Endpoint::address that means every interface.
constexpr std::string_view kEveryInterface = "*";

Addresses resolve(const Endpoint& endpoint) {
  if (endpoint.address.empty()) throw CommError("expected an address or a host name, got ''");
  if (endpoint.port < 0 || endpoint.port > 65535) {
    throw CommError("{}: expected a port from 0 to 65535, got {}", endpoint.address, endpoint.port);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result = ::getaddrinfo(endpoint.address.c_str(), std::to_string(endpoint.port).c_str(),
                                   &hints, &found);
  if (result != 0) {
    throw CommError("cannot resolve '{}': {}", endpoint.address, ::gai_strerror(result));
  }
  return {found, &::freeaddrinfo};
}

void set_option(const FileDescriptor& socket, int level, int option, int value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

FileDescriptor open_socket(const addrinfo& address) {
  return FileDescriptor(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

void tune(const FileDescriptor& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kHostLostSeconds / 3);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kHostLostSeconds / 3);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 2);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kHostLostSeconds * 1000);
}

bool try_bind(const FileDescriptor& socket, const addrinfo& address, bool both_families) {
  if (!socket) return false;
  if (address.ai_family == AF_INET6) {
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1);
  }
  return ::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0;
}

// Throws CommError.
FileDescriptor bind_to(const Endpoint& endpoint) {
  // Every interface: IPv6 and IPv4 with one socket, or only IPv4 if the host has no IPv6.
  const bool all = endpoint.address == kEveryInterface;
  for (const char* address : {all ? "::" : endpoint.address.c_str(), all ? "0.0.0.0" : nullptr}) {
    if (address == nullptr) break;
    const Addresses addresses = resolve({.address = address, .port = endpoint.port});
    FileDescriptor socket = open_socket(*addresses);
    // A given port may still have closing connections of an earlier run. A port that the kernel
    // chooses has none.
    if (socket && endpoint.port != 0) set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (try_bind(socket, *addresses, all)) return socket;
    if (errno == EADDRINUSE) break;
  }
  throw CommError("{}: cannot listen: {}", to_string(endpoint), std::strerror(errno));
}

using NameOfEnd = int (*)(int, sockaddr*, socklen_t*);

std::string address_of(const FileDescriptor& socket, NameOfEnd name_of_end) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[NI_MAXHOST] = {};
  if (name_of_end(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) != 0) {
    return "";
  }
  // A socket for both families shows an IPv4 address with this prefix.
  constexpr std::string_view kMapped = "::ffff:";
  const std::string_view all = text;
  const bool mapped = all.starts_with(kMapped) && all.find('.') != all.npos;
  return std::string(mapped ? all.substr(kMapped.size()) : all);
}

// If no process listens on a port of the ephemeral range, the kernel may choose the same port for
// our end and connect the socket to itself.
bool is_connected_to_itself(const FileDescriptor& socket) {
  sockaddr_storage ours{}, theirs{};
  socklen_t our_size = sizeof ours, their_size = sizeof theirs;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&ours), &our_size) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&theirs), &their_size) == 0 &&
         our_size == their_size && std::memcmp(&ours, &theirs, our_size) == 0;
}

// Returns 0 or the errno.
int try_connect(const FileDescriptor& socket, const addrinfo& address, Clock::time_point deadline) {
  if (!socket) return errno;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    if (error != 0) return error;
  }
  return is_connected_to_itself(socket) ? ECONNREFUSED : 0;
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.address.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", endpoint.address, endpoint.port)
            : fmt::format("{}:{}", endpoint.address, endpoint.port);
}

FileDescriptor listen_on(const Endpoint& endpoint) {
  FileDescriptor socket = bind_to(endpoint);
  if (::listen(socket.get(), SOMAXCONN) != 0) {
    throw CommError("{}: cannot listen: {}", to_string(endpoint), std::strerror(errno));
  }
  return socket;
}

FileDescriptor reserve_port(const Endpoint& endpoint) {
  FileDescriptor socket = bind_to(endpoint);
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  return socket;
}

std::string local_address(const FileDescriptor& socket) {
  return address_of(socket, [](int fd, sockaddr* name, socklen_t* size) {
    return ::getsockname(fd, name, size);
  });
}

std::string peer_address(const FileDescriptor& socket) {
  return address_of(socket, [](int fd, sockaddr* name, socklen_t* size) {
    return ::getpeername(fd, name, size);
  });
}

int local_port(const FileDescriptor& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw CommError("cannot tell the port of a socket: {}", std::strerror(errno));
  }
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) tune(socket);
  return socket;
}

FileDescriptor connect_to(const Endpoint& endpoint, Clock::time_point deadline) {
  const Addresses addresses = resolve(endpoint);
  std::ptrdiff_t left = 0;
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next) ++left;
  int error = 0;
  for (const addrinfo* address = addresses.get(); address; address = address->ai_next, --left) {
    FileDescriptor socket = open_socket(*address);
    // Each address gets an equal share of the time that is left, so that an address that drops
    // packets does not use up the time of the next ones.
    const auto now = Clock::now();
    error = try_connect(socket, *address, now + (deadline - now) / left);
    if (error != 0) continue;
    tune(socket);
    return socket;
  }
  throw CommError("{}: cannot connect: {}", to_string(endpoint), std::strerror(error));
}

bool wait_for(const FileDescriptor& socket, short events, Clock::time_point deadline) {
  pollfd poll{.fd = socket.get(), .events = events, .revents = 0};
  while (::poll(&poll, 1, milliseconds_until(deadline)) <= 0) {
    if (Clock::now() >= deadline) return false;
  }
  return true;
}

Clock::time_point deadline_in(std::chrono::milliseconds timeout) {
  return Clock::now() + std::clamp<std::chrono::milliseconds>(timeout, 0ms, 24h * 365);
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  // At most an hour. Callers repeat the wait if that was too short.
  return static_cast<int>(std::clamp<std::chrono::milliseconds>(left, 0ms, 1h).count());
}

}  // namespace lockstep::rendezvous
