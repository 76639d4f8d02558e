#include "lockstep/launcher/coordinator.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launcher/membership.h"
#include "lockstep/launcher/nodes.h"
#include "lockstep/process/background.h"
#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/handshake.h"

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Clock;
using rendezvous::FieldReader;
using rendezvous::FieldWriter;
using rendezvous::Frame;
using rendezvous::FrameKind;

constexpr auto kBeat = 100ms;
constexpr auto kHandshakeTime = 5s;
constexpr auto kFarewell = 2s;
// At most this many connections, plus twice the number of nodes, may be open that have not proved
// the token. If there are more, the oldest of them are closed, so that a flood of connections
// neither uses up the descriptors nor keeps nodes out.
constexpr std::size_t kMostStrangers = 64;
// At most this many connections are accepted before the excess ones are closed.
constexpr int kMostAtOnce = 32;

}  // namespace

std::string membership_token(const std::string& token, const MembershipTerms& terms) {
  return rendezvous::derive_token(token, fmt::format("membership of nodes {}:{} with {} endpoints",
                                                     terms.least, terms.most, terms.endpoints));
}

class Coordinator::Loop {
 public:
  explicit Loop(CoordinatorOptions options)
      : options_(std::move(options)),
        handshake_(membership_token(options_.token, {.endpoints = options_.endpoints,
                                                     .least = options_.least,
                                                     .most = options_.most}),
                   options_.run),
        listener_(rendezvous::listen_on(options_.listen)),
        membership_({.own = options_.own,
                     .least = options_.least,
                     .most = options_.most,
                     .has_successors = options_.endpoints > 1,
                     .may_found = options_.may_found,
                     .max_restarts = options_.max_restarts,
                     .timeout = options_.timeout,
                     .last_call = options_.last_call,
                     .grace = options_.grace,
                     .send = [this](const auto& node, FrameKind kind,
                                    const auto& payload) { send(node, kind, payload); },
                     .meeting = [this] { return reserve(); },
                     .points = options_.points},
                    Clock::now()),
        thread_([this] { run(); }) {}

  ~Loop() {
    ending_ = true;
    wakeup_.wake();
    thread_.join();
  }

  // The destructor follows, and the thread reads the end only when that has set `ending_`.
  void end_run(const RunEnd& end) { end_of_run_ = end; }

 private:
  enum class Stage { kStranger, kChallenged, kWelcome, kNode };

  struct NodeConnection {
    explicit NodeConnection(FileDescriptor socket) : channel(std::move(socket)) {}
    rendezvous::FrameChannel channel;
    Stage stage = Stage::kStranger;
    rendezvous::Nonces nonces = {};
    std::string node = {};  // its id, at Stage::kNode
    Clock::time_point since = Clock::now();
    Clock::duration silent{0};
    std::string gone = {};  // why the connection is to be closed
  };

  void run() {
    process::enter_background_thread("lockstep-nodes");
    for (auto deadline = Clock::time_point::max(); Clock::now() < deadline;) {
      if (ending_ && deadline == Clock::time_point::max()) {
        deadline = Clock::now() + kFarewell;
        if (end_of_run_) membership_.end_run(*end_of_run_);
      }
      if (ending_ && (!membership_.is_over() || !has_nodes())) return;
      poll_once();
      // If this process was stopped itself, that time must not count against the nodes. It is not
      // rounded: with many messages each wait is shorter than a millisecond.
      const auto now = Clock::now();
      const auto waited = std::min<Clock::duration>(now - last_watch_, 2 * kBeat);
      last_watch_ = now;
      for (auto& [id, connection] : connections_) watch(connection, waited);
      close_gone();
      drop_strangers();
      membership_.tick(Clock::now());
      close_gone();
    }
  }

  bool has_nodes() const {
    for (const auto& [id, connection] : connections_) {
      if (connection.stage == Stage::kNode) return true;
    }
    return false;
  }

  void poll_once() {
    std::vector<int> ids;
    std::vector<pollfd> polls = {{wakeup_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (Clock::now() < accept_again_) polls[1].fd = -1;
    for (const auto& [id, connection] : connections_) {
      ids.push_back(id);
      const short out = connection.channel.has_output() ? POLLOUT : 0;
      polls.push_back({connection.channel.socket().get(), static_cast<short>(POLLIN | out), 0});
    }
    if (::poll(polls.data(), polls.size(), static_cast<int>(kBeat / 1ms)) <= 0) return;
    if (polls[0].revents != 0) wakeup_.clear();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      NodeConnection& connection = connections_.at(ids[i]);
      if (polls[i + 2].revents & POLLOUT) connection.channel.flush();
      if (polls[i + 2].revents & ~POLLOUT) receive(connection);
    }
    if (polls[1].revents != 0) accept();
  }

  void accept() {
    for (int taken = 0; taken < kMostAtOnce; ++taken) {
      FileDescriptor socket = rendezvous::accept_from(listener_);
      if (!socket) {
        // Mostly because no descriptor is free. The listener stays readable then, so it is not
        // polled for a while.
        if (errno != EAGAIN && errno != EWOULDBLOCK) accept_again_ = Clock::now() + kBeat;
        return;
      }
      connections_.emplace(next_id_++, NodeConnection(std::move(socket)));
    }
  }

  void drop_strangers() {
    const auto is_stranger = [](const auto& entry) {
      return entry.second.stage == Stage::kStranger || entry.second.stage == Stage::kChallenged;
    };
    auto strangers = static_cast<std::size_t>(std::ranges::count_if(connections_, is_stranger));
    const std::size_t most = kMostStrangers + 2 * static_cast<std::size_t>(options_.most);
    // Connections are ordered by their numbers, so the oldest are closed first.
    std::erase_if(connections_, [&](const auto& entry) {
      if (strangers <= most || !is_stranger(entry)) return false;
      --strangers;
      return true;
    });
  }

  void receive(NodeConnection& connection) {
    connection.silent = {};
    const bool open = connection.channel.receive();
    try {
      const auto next = [&] {
        const bool trusted =
            connection.stage == Stage::kWelcome || connection.stage == Stage::kNode;
        return connection.channel.next(trusted ? rendezvous::kLargestPayload
                                               : rendezvous::kLargestHello);
      };
      while (const auto frame = next()) handle(connection, *frame);
      if (!open) connection.gone = "its launcher has ended";
    } catch (const std::exception& error) {
      if (connection.stage == Stage::kStranger || connection.stage == Stage::kChallenged) {
        connection.channel.send(FrameKind::kTurnedAway, FieldWriter().text(error.what()).payload());
      }
      connection.gone = error.what();
    }
  }

  void handle(NodeConnection& connection, const Frame& frame) {
    const auto now = Clock::now();
    switch (connection.stage) {
      case Stage::kStranger:
        return challenge(connection, frame);
      case Stage::kChallenged:
        return welcome(connection, frame);
      case Stage::kWelcome:
        if (frame.kind == FrameKind::kHeartbeat) return;
        if (frame.kind != FrameKind::kJoin) throw CommError("expected the description of a node");
        return join(connection, decode_node(frame.payload), now);
      case Stage::kNode:
        break;
    }
    if (frame.kind == FrameKind::kHeartbeat) return;
    if (frame.kind == FrameKind::kAgree) {
      membership_.agreed(connection.node, decode_stop(frame.payload).generation);
    } else if (frame.kind == FrameKind::kEnded) {
      membership_.ended(connection.node, decode_outcome(frame.payload), now);
    } else if (frame.kind == FrameKind::kLeave) {
      connection.gone = printable_lines(FieldReader(frame.payload).text());
    } else {
      throw CommError("it sent a message of the unknown kind {}", static_cast<int>(frame.kind));
    }
  }

  void challenge(NodeConnection& connection, const Frame& hello) {
    if (hello.kind != FrameKind::kHello) throw CommError("expected a handshake first");
    connection.nonces.client = FieldReader(hello.payload).text();
    if (connection.nonces.client.size() != rendezvous::kNonceBytes) {
      throw CommError("expected {} random bytes in a hello", rendezvous::kNonceBytes);
    }
    connection.nonces.server = rendezvous::random_bytes(rendezvous::kNonceBytes);
    connection.stage = Stage::kChallenged;
    connection.channel.send(FrameKind::kChallenge,
                            FieldWriter()
                                .text(connection.nonces.server)
                                .text(handshake_.server_proof(connection.nonces))
                                .payload());
  }

  void welcome(NodeConnection& connection, const Frame& proof) {
    if (proof.kind != FrameKind::kProof) throw CommError("expected a proof");
    FieldReader fields(proof.payload);
    const std::string claim = fields.text();
    if (!rendezvous::Handshake::matches(handshake_.client_proof(connection.nonces, claim),
                                        fields.text())) {
      throw CommError("wrong token");
    }
    connection.stage = Stage::kWelcome;
    connection.channel.send(FrameKind::kWelcome, encode(membership_.status()));
  }

  void join(NodeConnection& connection, const NodeDescription& node, Clock::time_point now) {
    // A node that comes again has closed its old connection, even if this is not known here yet.
    for (auto& [id, other] : connections_) {
      if (other.stage == Stage::kNode && other.node == node.id) {
        other.gone = "it has connected again";
        other.stage = Stage::kStranger;
        membership_.lost(node.id, other.gone, now);
      }
    }
    connection.stage = Stage::kNode;
    connection.node = node.id;
    membership_.joined(node, now);
  }

  void watch(NodeConnection& connection, Clock::duration waited) {
    connection.silent += waited;
    if (!connection.gone.empty()) return;
    if (connection.stage == Stage::kNode) {
      if (connection.silent >= options_.silence) {
        connection.gone = fmt::format(
            "it has sent nothing for {}: its host is down, or the network between the nodes is cut",
            format_duration(connection.silent));
      } else if (Clock::now() - last_beat_[connection.node] >= kBeat) {
        last_beat_[connection.node] = Clock::now();
        connection.channel.send(FrameKind::kHeartbeat, "");
      }
    } else if (Clock::now() - connection.since > kHandshakeTime) {
      connection.gone = "it did not finish its handshake";
    }
  }

  // A node whose connection is closed while this coordinator lives is told so. Without this it
  // would take the end of the connection for the end of the coordinator.
  void close_gone() {
    for (auto it = connections_.begin(); it != connections_.end();) {
      if (it->second.gone.empty()) {
        ++it;
        continue;
      }
      it->second.channel.send(FrameKind::kRegroup, "");
      const bool was_node = it->second.stage == Stage::kNode;
      const std::string node = it->second.node;
      const std::string how = it->second.gone;
      it = connections_.erase(it);
      if (!was_node) continue;
      last_beat_.erase(node);
      membership_.lost(node, how, Clock::now());
    }
  }

  void send(const std::string& node, FrameKind kind, const std::string& payload) {
    for (auto& [id, connection] : connections_) {
      if (connection.stage == Stage::kNode && connection.node == node && connection.gone.empty()) {
        connection.channel.send(kind, payload);
      }
    }
  }

  // The port is bound until the next generation, so that the kernel gives it to no other program.
  RanksMeeting reserve() {
    reserved_ = rendezvous::reserve_port({.address = options_.listen.address, .port = 0});
    return {.port = rendezvous::local_port(reserved_), .run_id = random_run_id()};
  }

  const CoordinatorOptions options_;
  const rendezvous::Handshake handshake_;
  const FileDescriptor listener_;
  const process::Wakeup wakeup_;
  std::atomic<bool> ending_ = false;
  std::optional<RunEnd> end_of_run_ = {};  // the thread uses it only if ending_

  // Only the thread uses these.
  FileDescriptor reserved_;
  std::map<int, NodeConnection> connections_;
  std::map<std::string, Clock::time_point> last_beat_;  // to each node
  int next_id_ = 0;
  Clock::time_point last_watch_ = Clock::now();
  Clock::time_point accept_again_ = {};
  Membership membership_;

  std::thread thread_;  // last: it uses all of the above
};

Coordinator::Coordinator(CoordinatorOptions options)
    : loop_(std::make_unique<Loop>(std::move(options))) {}

Coordinator::~Coordinator() = default;

void Coordinator::end_run(const RunEnd& end) {
  loop_->end_run(end);
}

}  // namespace lockstep::launcher
