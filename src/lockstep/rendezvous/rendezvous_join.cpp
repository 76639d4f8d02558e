#include "lockstep/rendezvous/rendezvous_join.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 10ms;
constexpr auto kLongestPause = 200ms;
// A new attempt begins after this time, in case the packets of this one were dropped.
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

// The next frame, or nothing at the deadline. Throws if the connection is closed.
std::optional<Frame> receive_frame(FrameChannel& channel, Clock::time_point deadline) {
  bool open = true;
  while (true) {
    if (auto frame = channel.next(kLargestHello)) return frame;
    if (!open) throw CommError("the connection was closed without an answer");
    // What the socket did not accept at once is sent when it can be.
    const short out = channel.has_output() ? POLLOUT : 0;
    if (!wait_for(channel.socket(), static_cast<short>(POLLIN | out), deadline)) {
      return std::nullopt;
    }
    channel.flush();
    open = channel.receive();
  }
}

// A text that is unique to this process. The pid makes a forked child's differ from its parent's.
std::string process_identity() {
  static const std::string random = random_bytes(16);
  return fmt::format("{} {}", random, ::getpid());
}

enum class Outcome { kWelcome, kTryAgain };

// The result of one attempt to join.
struct JoinAttempt {
  Outcome outcome = Outcome::kTryAgain;
  std::string cause = {};  // why to try again
};

// Makes the handshakes of one rank with the server.
class Joining {
 public:
  explicit Joining(const RendezvousOptions& options)
      : options_(options),
        server_{.address = options.address, .port = options.port},
        handshake_(options.token, options.run) {}

  const Endpoint& server() const { return server_; }

  // Throws Refused or Silence if another attempt is useless, and CommError if it may succeed.
  JoinAttempt shake_hands(FrameChannel& channel) const {
    const auto deadline = deadline_in(options_.timeout);
    const auto receive = [&] {
      if (auto frame = receive_frame(channel, deadline)) return *std::move(frame);
      throw Silence();
    };
    Nonces nonces{.client = random_bytes(kNonceBytes)};
    channel.send(FrameKind::kHello, FieldWriter().text(nonces.client).payload());
    const Frame challenge = receive();
    // Before the server's proof, a message may come from any program: it is not used or shown.
    if (challenge.kind != FrameKind::kChallenge)
      return {.cause = "it is no rendezvous of Lockstep"};
    FieldReader fields(challenge.payload);
    nonces.server = fields.text();
    if (nonces.server.size() != kNonceBytes ||
        !Handshake::matches(handshake_.server_proof(nonces), fields.text())) {
      throw Refused(
          "the server there does not know this run's token: it belongs to another run, or the "
          "token or the run's name differs between the hosts");
    }
    channel.send(FrameKind::kProof, proof(nonces));
    const Frame answer = receive();
    if (answer.kind == FrameKind::kWelcome) return {.outcome = Outcome::kWelcome};
    if (answer.kind == FrameKind::kComeLater) return {.cause = "an earlier rendezvous is not over"};
    if (answer.kind == FrameKind::kTurnedAway) throw Refused(FieldReader(answer.payload).text());
    return {.cause = "it sent something else than an answer"};
  }

  // The errors after which no further attempt is made.
  struct Refused : CommError {
    explicit Refused(const std::string& reason) : CommError("{}", reason) {}
  };
  struct Silence : CommError {
    Silence() : CommError("it accepts connections and does not answer") {}
  };

 private:
  std::string proof(const Nonces& nonces) const {
    const std::string claim = FieldWriter()
                                  .integer(options_.rank)
                                  .integer(options_.world_size)
                                  .text(process_identity())
                                  .payload();
    return FieldWriter().text(claim).text(handshake_.client_proof(nonces, claim)).payload();
  }

  const RendezvousOptions& options_;
  Endpoint server_;
  Handshake handshake_;
};

}  // namespace

FrameChannel join_rendezvous(const RendezvousOptions& options) {
  check(options);
  const Joining joining(options);
  const std::string where = to_string(joining.server());
  const auto limit = options.join_timeout.value_or(options.timeout);
  const auto deadline = deadline_in(limit);
  std::string cause = "no time to wait";
  for (std::chrono::milliseconds pause = kFirstPause; Clock::now() < deadline;
       pause = std::min<std::chrono::milliseconds>(2 * pause, kLongestPause)) {
    try {
      const auto attempt = std::min<Clock::time_point>(deadline, Clock::now() + kLongestAttempt);
      FrameChannel channel(connect_to(joining.server(), attempt));
      const JoinAttempt made = joining.shake_hands(channel);
      if (made.outcome == Outcome::kWelcome) return channel;
      cause = made.cause;
    } catch (const Joining::Refused& refused) {
      throw CommError("rendezvous at {}: rank {} of {} was turned away: {}", where, options.rank,
                      options.world_size, refused.what());
    } catch (const Joining::Silence&) {
      throw CommError(
          "rank 0: the rendezvous at {} did not answer rank {} in {}: it accepts connections, so "
          "its process is stopped or hangs, or another program has the port",
          where, options.rank, format_duration(options.timeout));
    } catch (const OtherVersion& error) {
      throw CommError(
          "rendezvous at {}: rank {} of {}: {}; install the same version of Lockstep on all hosts",
          where, options.rank, options.world_size, error.what());
    } catch (const CommError& error) {
      cause = error.what();
    }
    std::this_thread::sleep_for(std::clamp<Clock::duration>(deadline - Clock::now(), 0ms, pause));
  }
  throw CommError("rank 0 did not come: rank {} of {} found no rendezvous at {} in {}: {}",
                  options.rank, options.world_size, where, format_duration(limit), cause);
}

}  // namespace lockstep::rendezvous
