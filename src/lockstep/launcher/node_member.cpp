#include "lockstep/launcher/node_member.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launcher/nodes.h"

namespace lockstep::launcher {
namespace {

using namespace std::chrono_literals;
using rendezvous::Clock;
using rendezvous::FieldReader;
using rendezvous::FieldWriter;
using rendezvous::Frame;
using rendezvous::FrameKind;

constexpr auto kBeatInterval = 100ms;
constexpr auto kConnectTime = 1s;
constexpr auto kPause = 100ms;
constexpr auto kFarewellTime = 1s;

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Whether the address belongs to this host: only then a socket can be bound to it.
bool is_own_address(const std::string& address) {
  try {
    rendezvous::reserve_port({.address = address, .port = 0});
    return true;
  } catch (const CommError&) {
    return false;
  }
}

Frame receive_frame_within(rendezvous::FrameChannel& channel, Clock::time_point deadline) {
  bool open = true;
  while (true) {
    if (auto frame = channel.next(rendezvous::kLargestHello)) return *std::move(frame);
    if (!open) throw CommError("the connection was closed without an answer");
    if (!rendezvous::wait_for(channel.socket(), POLLIN, deadline)) {
      throw CommError("it accepts connections and does not answer");
    }
    open = channel.receive();
  }
}

}  // namespace

// A coordinator that can be joined.
struct NodeMember::Found {
  std::size_t endpoint = 0;
  CoordinatorStatus status = {};
  rendezvous::FrameChannel channel;
};

NodeMember::NodeMember(NodeMemberOptions options)
    : options_(std::move(options)),
      handshake_(membership_token(options_.token,
                                  {.endpoints = static_cast<int>(options_.endpoints.size()),
                                   .least = options_.least,
                                   .most = options_.most}),
                 options_.run),
      coordinators_(options_.endpoints.size()),
      self_{.id = random_run_id() + random_run_id(),
            .host = host_name(),
            .ranks = options_.ranks,
            .cores = options_.cores},
      thread_([this] { run(); }) {}

NodeMember::~NodeMember() {
  leave("its launcher has ended");
  thread_.join();
}

std::variant<BegunGeneration, RunEnd> NodeMember::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return begun_ || over_; });
  if (over_) return *over_;
  const BegunGeneration generation = *std::exchange(begun_, std::nullopt);
  running_ = generation.part.generation.number;
  return generation;
}

bool NodeMember::others_ended(int generation) {
  const std::lock_guard lock(mutex_);
  return others_ended_ == generation;
}

void NodeMember::ended(GenerationOutcome outcome) {
  const std::lock_guard lock(mutex_);
  running_ = 0;
  outgoing_.emplace_back(FrameKind::kEnded, encode(outcome));
  wakeup_.wake();
}

void NodeMember::leave(const std::string& why, int code) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(leaving_, true)) return;
  farewell_ = {.code = code,
               .text = fmt::format("the node of the run's only endpoint, {}, has left: {}",
                                   self_.host, why)};
  if (!over_) outgoing_.emplace_back(FrameKind::kLeave, FieldWriter().text(why).payload());
  wakeup_.wake();
}

void NodeMember::run() {
  process::enter_background_thread("lockstep-member");
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (leaving_ && (!channel_ || over_)) break;
    }
    if (channel_) {
      serve();
    } else {
      look_for_coordinator();
    }
  }
  channel_.reset();
  if (coordinators_.size() == 1 && coordinators_[0]) coordinators_[0]->end_run(farewell_);
  coordinators_.clear();
}

// Connects to every endpoint and joins the coordinator that has a running generation, else the
// first one. So nodes that look at the same time come together.
void NodeMember::look_for_coordinator() {
  {
    std::unique_lock lock(mutex_);
    // A node joins no other coordinator while its ranks are being stopped.
    if (running_ != 0 || over_) {
      changed_.wait_for(lock, kPause);
      return;
    }
    outgoing_.clear();  // they were for the coordinator that is lost
    if (leaving_) return;
  }
  refused_.reset();
  std::optional<Found> best;
  for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
    open_own(i);
    auto found = try_endpoint(i);
    if (!found) continue;
    const auto value = [](const Found& one) {
      return one.status.active ? one.status.generation : 0;
    };
    if (!best || value(*found) > value(*best)) best = std::move(found);
  }
  const auto now = Clock::now();
  if (!looking_since_) looking_since_ = now;
  const bool in_time = now - *looking_since_ < options_.timeout;
  // A coordinator that has too few nodes sends them away again, so this does not go on for ever.
  if (best && (best->status.active || in_time)) {
    endpoint_ = best->endpoint;
    channel_.emplace(std::move(best->channel));
    channel_->send(FrameKind::kJoin, encode(self_));
    silent_ = {};
    began_here_ = false;
    return;
  }
  if (refused_) return end_run(*refused_);
  if (!in_time) return end_run(nothing_found(best.has_value()));
  std::this_thread::sleep_for(kPause);
}

std::string NodeMember::nothing_found(bool has_few) const {
  if (has_few && self_.begun.number == 0) {
    return fmt::format(
        "too few nodes came in {}; with several endpoints the first start needs more than half of "
        "{} nodes, so that it "
        "cannot happen twice",
        format_duration(options_.timeout), options_.most);
  }
  if (has_few) {
    return fmt::format(
        "only a part of the {} nodes of the last generation came in {}: the others may go on "
        "without this part, so it "
        "ends; the run can be resumed",
        self_.begun.nodes.size(), format_duration(options_.timeout));
  }
  std::string places;
  for (const NodeEndpoint& endpoint : options_.endpoints) {
    if (!places.empty()) places += ", ";
    places += to_string(endpoint.address);
  }
  return fmt::format(
      "found no other launcher of the run at {} in {}: {}{}", places,
      format_duration(options_.timeout), cause_,
      self_.begun.number == 0
          ? ""
          : "; the other nodes may go on without this one, or the run can be resumed");
}

void NodeMember::end_run(const std::string& why) {
  const std::lock_guard lock(mutex_);
  over_ = RunEnd{.code = 1, .text = why};
  changed_.notify_all();
}

// The first endpoint's node founds the run. Those of the others listen only when a coordinator was
// lost: otherwise two of them could found it.
void NodeMember::open_own(std::size_t index) {
  if (coordinators_[index] || (index > 0 && self_.begun.number == 0)) return;
  const NodeEndpoint& endpoint = options_.endpoints[index];
  const bool own = options_.own_endpoint ? *options_.own_endpoint == static_cast<int>(index)
                                         : is_own_address(endpoint.address.address);
  if (!own) return;
  try {
    coordinators_[index] = std::make_unique<Coordinator>(CoordinatorOptions{
        .listen = {.address = endpoint.network.listen, .port = endpoint.address.port},
        .token = options_.token,
        .run = options_.run,
        .own = self_.id,
        .least = options_.least,
        .most = options_.most,
        .endpoints = static_cast<int>(options_.endpoints.size()),
        .may_found = index == 0,
        .max_restarts = options_.max_restarts,
        .timeout = options_.timeout,
        .silence = options_.silence,
        .last_call = options_.last_call,
        .grace = options_.grace,
        .points = options_.points});
  } catch (const std::exception& error) {
    // Another launcher of this host may have the port, or there may be no descriptor or thread now.
    cause_ = message_of(error);
  }
}

std::optional<NodeMember::Found> NodeMember::try_endpoint(std::size_t index) {
  const NodeEndpoint& endpoint = options_.endpoints[index];
  const std::string& address =
      coordinators_[index] ? endpoint.network.own : endpoint.address.address;
  try {
    const auto deadline = Clock::now() + kConnectTime;
    rendezvous::FrameChannel channel(
        rendezvous::connect_to({.address = address, .port = endpoint.address.port}, deadline));
    rendezvous::Nonces nonces{.client = rendezvous::random_bytes(rendezvous::kNonceBytes)};
    channel.send(FrameKind::kHello, FieldWriter().text(nonces.client).payload());
    const Frame challenge = receive_frame_within(channel, deadline + kConnectTime);
    if (challenge.kind != FrameKind::kChallenge) throw CommError("it is no launcher of Lockstep");
    FieldReader fields(challenge.payload);
    nonces.server = fields.text();
    if (!rendezvous::Handshake::matches(handshake_.server_proof(nonces), fields.text())) {
      // Later this may be a launcher of another run; the run goes on without it.
      if (self_.begun.number == 0) {
        refused_ = fmt::format(
            "{}: the launcher there does not know this run's token: it belongs to another run, or "
            "the nodes were started differently. The token, --rdzv-id, --nnodes and "
            "--rdzv-endpoint must be the same on all nodes",
            to_string(endpoint.address));
      }
      throw CommError("it does not know this run's token");
    }
    const std::string claim = self_.id;
    channel.send(FrameKind::kProof,
                 FieldWriter().text(claim).text(handshake_.client_proof(nonces, claim)).payload());
    const Frame answer = receive_frame_within(channel, deadline + kConnectTime);
    if (answer.kind != FrameKind::kWelcome) throw CommError("it turned this launcher away");
    return Found{
        .endpoint = index, .status = decode_status(answer.payload), .channel = std::move(channel)};
  } catch (const CommError& error) {
    cause_ = fmt::format("{}: {}", to_string(endpoint.address), error.what());
    return std::nullopt;
  }
}

// Sends what is to be sent, and receives for at most a beat.
void NodeMember::serve() {
  std::vector<std::pair<FrameKind, std::string>> outgoing;
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    outgoing.swap(outgoing_);
    leaving = leaving_;
  }
  for (const auto& [kind, payload] : outgoing) channel_->send(kind, payload);
  if (leaving) {
    const auto deadline = Clock::now() + kFarewellTime;
    while (channel_->has_output() && rendezvous::wait_for(channel_->socket(), POLLOUT, deadline)) {
      channel_->flush();
    }
    channel_.reset();
    return;
  }
  if (Clock::now() - last_beat_ >= kBeatInterval) {
    last_beat_ = Clock::now();
    channel_->send(FrameKind::kHeartbeat, "");
  }

  const auto start = Clock::now();
  pollfd polls[] = {{wakeup_.fd(), POLLIN, 0}, {channel_->socket().get(), POLLIN, 0}};
  if (channel_->has_output()) polls[1].events |= POLLOUT;
  ::poll(polls, 2, static_cast<int>(kBeatInterval / 1ms));
  if (polls[0].revents != 0) wakeup_.clear();
  if (polls[1].revents & POLLOUT) channel_->flush();
  if ((polls[1].revents & ~POLLOUT) == 0) {
    // If this process was stopped itself, that time must not count against the coordinator.
    silent_ += std::min<Clock::duration>(Clock::now() - start, 2 * kBeatInterval);
    if (silent_ >= options_.silence) {
      lose(fmt::format("it has sent nothing for {}", format_duration(silent_)), false);
    }
    return;
  }
  silent_ = {};
  errno = 0;
  const bool open = channel_->receive();
  // The kernel of the coordinator's host closes the connection when its process ends. Other errors,
  // such as a network that cannot be reached, say nothing about the process. After a failed send
  // this side has closed the connection itself.
  const int receive_error = errno, send_error = channel_->send_error();
  const bool sent_well = send_error == 0 || send_error == ECONNRESET || send_error == EPIPE;
  const bool seen_to_end =
      !open && sent_well && (receive_error == 0 || receive_error == ECONNRESET);
  try {
    while (channel_) {
      const auto frame = channel_->next();
      if (!frame) break;
      take(*frame);
    }
    if (channel_ && !open) lose("its launcher has ended", seen_to_end);
  } catch (const CommError& error) {
    lose(error.what(), false);
  }
}

void NodeMember::take(const Frame& frame) {
  const auto number = [&] { return decode_stop(frame.payload).generation; };
  if (frame.kind == FrameKind::kPrepare) {
    prepared_ = decode_part(frame.payload);
    self_.agreed = prepared_->generation;
    self_.state = prepared_->state;
    channel_->send(FrameKind::kAgree, encode(StopOrder{.generation = self_.agreed.number}));
  } else if (frame.kind == FrameKind::kBegin) {
    if (!prepared_ || prepared_->generation.number != number()) return;
    self_.begun = prepared_->generation;
    self_.saw_end = false;
    began_here_ = true;
    looking_since_.reset();
    rendezvous::Endpoint master = options_.endpoints[endpoint_].address;
    master.port = prepared_->port;
    const std::lock_guard lock(mutex_);
    stop_.clear();
    begun_ = BegunGeneration{.part = *prepared_, .master = master};
    changed_.notify_all();
  } else if (frame.kind == FrameKind::kStop) {
    if (number() == self_.begun.number) stop_.wake();
  } else if (frame.kind == FrameKind::kOthersEnded) {
    const std::lock_guard lock(mutex_);
    others_ended_ = number();
  } else if (frame.kind == FrameKind::kOver) {
    const std::lock_guard lock(mutex_);
    over_ = decode_end(frame.payload);
    stop_.wake();  // if the coordinator's user has ended the run, ranks may run here
    changed_.notify_all();
  } else if (frame.kind == FrameKind::kRegroup) {
    // The coordinator lives, so this is not an end that was seen.
    channel_.reset();
    forget_generation();
  } else if (frame.kind != FrameKind::kHeartbeat) {
    throw CommError("it sent a message of the unknown kind {}", static_cast<int>(frame.kind));
  }
}

// The ranks of a generation cannot go on without its coordinator.
void NodeMember::forget_generation() {
  stop_.wake();
  const std::lock_guard lock(mutex_);
  begun_.reset();
}

void NodeMember::lose(const std::string& how, bool seen_to_end) {
  channel_.reset();
  // A node that waited during the run has looked for a long time, but not since this loss.
  looking_since_.reset();
  if (began_here_) self_.saw_end = seen_to_end;
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
  }
  options_.say(fmt::format(
      "the coordinator at {} is lost: {}; looking for another one for up to {}",
      to_string(options_.endpoints[endpoint_].address), how, format_duration(options_.timeout)));
  forget_generation();
}

}  // namespace lockstep::launcher
