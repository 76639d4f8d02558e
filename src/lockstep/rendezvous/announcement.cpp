#include "lockstep/rendezvous/announcement.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"
#include "lockstep/base/text.h"

namespace lockstep::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often a reader tries, and how long it waits for one answer: the process that has the name may
// be stopped.
constexpr milliseconds kRetryInterval(5);
constexpr milliseconds kAnswerTimeout(1000);

struct Address {
  explicit Address(const std::string& name) {
    // A leading zero byte makes the name abstract.
    const std::string full = "lockstep-" + name;
    if (full.size() + 1 > sizeof value.sun_path) {
      throw CommError("announcement '{}': expected a shorter name", name);
    }
    value.sun_family = AF_UNIX;
    std::memcpy(value.sun_path + 1, full.data(), full.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + full.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&value); }

  sockaddr_un value{};
  socklen_t length = 0;
};

// Follows the text. Without it, the end of a connection that broke would look like the end of the
// text, and a part of a port is a port.
constexpr char kEndOfText = '\n';

FileDescriptor make_socket(const std::string& name) {
  FileDescriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made) {
    throw CommError("announcement '{}': cannot create a socket: {}", name, std::strerror(errno));
  }
  return made;
}

bool is_same_user(int peer) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return ::getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == ::getuid();
}

// Sends what fits into the socket's buffer, and does not wait for the reader. A line fits.
void send_text(int peer, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = repeat_if_interrupted(
        [&] { return ::send(peer, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT); });
    if (sent < 0) return;  // the reader finds no end of the text and asks again
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

void serve(int listening, int ending, const std::string& text) {
  process::enter_background_thread("lockstep name");
  while (true) {
    pollfd polls[] = {{.fd = listening, .events = POLLIN, .revents = 0},
                      {.fd = ending, .events = POLLIN, .revents = 0}};
    if (::poll(polls, 2, -1) < 0 && errno != EINTR) return;
    if (polls[1].revents != 0) return;
    if (polls[0].revents == 0) continue;
    const FileDescriptor peer(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) std::this_thread::sleep_for(kRetryInterval);  // for example, no descriptor is free
    if (!peer || !is_same_user(peer.get())) continue;
    send_text(peer.get(), text);
  }
}

// The text, if all of it arrives in time.
std::optional<std::string> read_all(const FileDescriptor& peer, milliseconds limit) {
  const auto start = Clock::now();
  std::string text;
  while (true) {
    const auto left = limit - std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    pollfd look{.fd = peer.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&look, 1, static_cast<int>(left.count())) != 1) return {};
    char bytes[1024];
    const auto count = ::read(peer.get(), bytes, sizeof bytes);
    if (count < 0) return {};
    if (count == 0) {
      if (text.empty() || text.back() != kEndOfText) return {};
      text.pop_back();
      return text;
    }
    text.append(bytes, static_cast<std::size_t>(count));
  }
}

// A connection to the process that has the name; empty if there is none.
FileDescriptor connect_to_name(const Address& address, const std::string& name,
                               milliseconds limit) {
  FileDescriptor peer = make_socket(name);
  const timeval longest{.tv_sec = limit.count() / 1000, .tv_usec = limit.count() % 1000 * 1000};
  ::setsockopt(peer.get(), SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
  if (::connect(peer.get(), address.get(), address.length) != 0) return {};
  return peer;
}

}  // namespace

Announcement::Announcement(const std::string& name, std::string text)
    : listening_(make_socket(name)) {
  const Address address(name);
  if (::bind(listening_.get(), address.get(), address.length) != 0 ||
      ::listen(listening_.get(), 128) != 0) {
    throw CommError("announcement '{}': {}", name, std::strerror(errno));
  }
  thread_ = std::thread([listening = listening_.get(), ending = ending_.fd(),
                         line = std::move(text) + kEndOfText] { serve(listening, ending, line); });
}

Announcement::~Announcement() {
  ending_.wake();
  thread_.join();
}

std::string read_announcement(const std::string& name, milliseconds timeout) {
  const Address address(name);
  const auto start = Clock::now();
  while (true) {
    const auto gone = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
    const auto limit = std::clamp(timeout - gone, milliseconds(1), kAnswerTimeout);
    if (const FileDescriptor peer = connect_to_name(address, name, limit)) {
      if (!is_same_user(peer.get())) {
        throw CommError("announcement '{}': another user's process has this name", name);
      }
      if (const auto text = read_all(peer, limit)) return *text;
    }
    if (Clock::now() - start >= timeout) {
      throw CommError("waited {} for rank 0 of '{}' on this host, which did not come",
                      format_duration(timeout), name);
    }
    std::this_thread::sleep_for(kRetryInterval);
  }
}

}  // namespace lockstep::rendezvous
