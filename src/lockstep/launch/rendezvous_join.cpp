#include "lockstep/launch/rendezvous_join.h"

#include <algorithm>
#include <thread>

#include <poll.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/socket.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 10ms;
constexpr auto kLongestPause = 200ms;
// A packet that a firewall swallowed is sent again by a new attempt.
constexpr auto kLongestAttempt = 5s;

void check(const RendezvousOptions& options) {
  if (options.port < 1 || options.port > 65535) {
    throw ConfigError("rendezvous: expected a port from 1 to 65535, got {}", options.port);
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    throw ConfigError("rendezvous: expected a rank from 0 to world size - 1, got {} of {}",
                      options.rank, options.world_size);
  }
}

// The server's answer to a hello, nothing at the deadline. Throws where there will be none.
std::optional<Frame> receive_frame(FrameChannel& channel, Clock::time_point deadline) {
  bool open = true;
  while (true) {
    if (auto frame = channel.next()) return frame;
    if (!open) throw CommError("the connection was closed without an answer");
    if (!wait_for(channel.socket(), POLLIN, deadline)) return std::nullopt;
    open = channel.receive();
  }
}

std::string hello(const RendezvousOptions& options) {
  return FieldWriter()
      .text(options.token)
      .integer(options.rank)
      .integer(options.world_size)
      .payload();
}

}  // namespace

FrameChannel join_rendezvous(const RendezvousOptions& options) {
  check(options);
  const Endpoint server{.address = options.address, .port = options.port};
  const auto deadline = deadline_in(options.timeout);
  std::string cause = "no time to wait";
  for (std::chrono::milliseconds pause = kFirstPause; Clock::now() < deadline;
       pause = std::min<std::chrono::milliseconds>(2 * pause, kLongestPause)) {
    std::optional<Frame> answer;
    try {
      const auto attempt = std::min<Clock::time_point>(deadline, Clock::now() + kLongestAttempt);
      FrameChannel channel(connect_to(server, attempt));
      channel.send(FrameKind::kHello, hello(options));
      answer = receive_frame(channel, deadline);
      if (answer && answer->kind == FrameKind::kWelcome) return channel;
      cause = "connected, but nobody answers";
    } catch (const CommError& error) {
      cause = error.what();
    }
    if (answer && answer->kind == FrameKind::kTurnedAway) {
      throw CommError("rendezvous at {}: rank {} of {} was turned away: {}", to_string(server),
                      options.rank, options.world_size, FieldReader(answer->payload).text());
    }
    std::this_thread::sleep_for(std::clamp<Clock::duration>(deadline - Clock::now(), 0ms, pause));
  }
  throw CommError("rendezvous at {}: rank {} of {} found no server in {}: {}", to_string(server),
                  options.rank, options.world_size,
                  format_duration(std::chrono::duration<double>(options.timeout).count()), cause);
}

}  // namespace lockstep::launch
