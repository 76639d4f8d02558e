#include "lockstep/rendezvous/rendezvous_link.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr auto kBeatInterval = 100ms;

}  // namespace

RendezvousLink::RendezvousLink(FrameChannel channel, RendezvousLinkOptions options)
    : options_(std::move(options)),
      local_address_(rendezvous::local_address(channel.socket())),
      channel_(std::move(channel)),
      roster_{.peers = std::vector<Peer>(static_cast<std::size_t>(options_.world_size))},
      thread_([this] { run(); }) {}

RendezvousLink::~RendezvousLink() {
  close("it was closed");
}

std::optional<std::string> RendezvousLink::ask(const Request& request) {
  std::unique_lock lock(mutex_);
  if (lost_) throw CommError("{}: {}", options_.name, *lost_);
  const std::int64_t id = next_request_++;
  const std::string number = FieldWriter().integer(id).payload();
  Waiting& waiting = waiting_[id];
  outgoing_.push_back({.kind = request.kind, .payload = number + request.fields.payload()});
  wakeup_.wake();

  changed_.wait_until(lock, request.deadline,
                      [&] { return waiting.done || lost_ || (request.until_failure && failure_); });
  const Waiting result = std::move(waiting);
  waiting_.erase(id);
  if (result.refused) throw CommError("{}: {}", options_.name, FieldReader(result.fields).text());
  if (result.done) return result.fields;
  if (lost_) throw CommError("{}: {}", options_.name, *lost_);
  if (request.kind == FrameKind::kAwait) {
    outgoing_.push_back({.kind = FrameKind::kCancel, .payload = number});
    wakeup_.wake();
  }
  return std::nullopt;
}

void RendezvousLink::set_status(std::string status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

void RendezvousLink::set_waits_for(std::string ranks) {
  const std::lock_guard lock(mutex_);
  waits_for_ = std::move(ranks);
}

std::vector<Peer> RendezvousLink::peers() const {
  const std::lock_guard lock(mutex_);
  std::vector<Peer> peers = roster_.peers;
  Peer& host = peers[0];
  if (!host.left && !host.failed) host.silent = std::max(host.silent, server_silent_);
  return peers;
}

std::optional<PeerFailure> RendezvousLink::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void RendezvousLink::set_failure_if_none(PeerFailure failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(failure);
  changed_.notify_all();
}

void RendezvousLink::expect_end() {
  const std::lock_guard lock(mutex_);
  end_expected_ = true;
}

void RendezvousLink::close(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    end_expected_ = true;
    stop_ = true;
    if (!lost_) lost_ = reason;
    changed_.notify_all();
  }
  wakeup_.wake();
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void RendezvousLink::run() {
  process::enter_background_thread("rendezvous link");
  try {
    bool open = true;
    while (true) {
      while (const auto frame = channel_.next()) take(*frame);
      if (!open) throw CommError("the connection broke: the process ended or was killed");
      if (!send_pending()) break;
      beat_if_due();
      open = wait_and_receive();
    }
  } catch (const std::exception& error) {
    lose(error.what());
  }
  channel_ = FrameChannel(FileDescriptor());
}

bool RendezvousLink::send_pending() {
  std::vector<Outgoing> outgoing;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return false;
    outgoing.swap(outgoing_);
  }
  for (const Outgoing& frame : outgoing) channel_.send(frame.kind, frame.payload);
  return true;
}

void RendezvousLink::beat_if_due() {
  if (!beat_answered_ || Clock::now() < last_beat_ + kBeatInterval) return;
  beat_answered_ = false;
  last_beat_ = Clock::now();
  FieldWriter fields;
  {
    const std::lock_guard lock(mutex_);
    fields.text(status_).text(waits_for_);
  }
  channel_.send(FrameKind::kBeat, fields.payload());
}

bool RendezvousLink::wait_and_receive() {
  const auto start = Clock::now();
  pollfd polls[] = {{.fd = wakeup_.fd(), .events = POLLIN, .revents = 0},
                    {.fd = channel_.socket().get(), .events = POLLIN, .revents = 0}};
  if (channel_.has_output()) polls[1].events |= POLLOUT;
  ::poll(polls, 2,
         milliseconds_until(beat_answered_ ? last_beat_ + kBeatInterval : start + kBeatInterval));
  if (polls[0].revents) wakeup_.clear();
  if (polls[1].revents & POLLOUT) channel_.flush();
  const bool readable = (polls[1].revents & ~POLLOUT) != 0;
  const bool open = !readable || channel_.receive();

  const std::lock_guard lock(mutex_);
  const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  if (readable) {
    server_silent_ = 0ms;
  } else if (!beat_answered_) {
    // Each wait counts at most two beats: if this process was stopped itself (Ctrl-Z), that time
    // must not count against the server.
    server_silent_ += std::min<milliseconds>(waited, 2 * kBeatInterval);
  }
  return open;
}

void RendezvousLink::take(const Frame& frame) {
  FieldReader fields(frame.payload);
  const std::lock_guard lock(mutex_);
  if (frame.kind == FrameKind::kRoster) {
    RosterView roster = RosterView::decode(frame.payload);
    if (roster.peers.size() != roster_.peers.size()) {
      throw CommError("it sent a list of {} ranks, expected {}", roster.peers.size(),
                      roster_.peers.size());
    }
    roster_ = std::move(roster);
    if (!failure_) failure_ = roster_.failure;
    beat_answered_ = true;
    if (failure_) changed_.notify_all();
  } else if (frame.kind == FrameKind::kAnswer || frame.kind == FrameKind::kRefusal) {
    const auto it = waiting_.find(fields.integer());
    if (it == waiting_.end()) return;  // the answer arrived after the deadline
    it->second = {.done = true,
                  .refused = frame.kind == FrameKind::kRefusal,
                  .fields = frame.payload.substr(FieldWriter().integer(0).payload().size())};
    changed_.notify_all();
  } else {
    throw CommError("it sent a message of the unknown kind {}", static_cast<int>(frame.kind));
  }
}

void RendezvousLink::lose(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!lost_) lost_ = fmt::format("the server in rank 0's process is gone: {}", reason);
  // After rank 0 has left, the end of its server is no failure.
  if (!failure_ && !end_expected_ && !roster_.peers[0].left) {
    failure_ = PeerFailure{.rank = 0, .reason = fmt::format("{}: {}", options_.name, reason)};
  }
  changed_.notify_all();
}

}  // namespace lockstep::rendezvous
