#include "lockstep/rendezvous/rendezvous_server.h"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>

#include "lockstep/base/error.h"
#include "lockstep/process/background.h"
#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/network.h"
#include "lockstep/rendezvous/rendezvous_service.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

// At most this many connections, plus twice the world size, may be open without having joined. If
// there are more, the oldest of them are closed, so that a flood of connections does not use up the
// process's descriptors.
constexpr std::size_t kMostStrangers = 64;
// At most this many connections are accepted before the excess ones are closed.
constexpr int kMostAtOnce = 32;
constexpr auto kPollInterval = 200ms;

constexpr const char* kConnectionBroke =
    "its connection to the rendezvous broke: the process ended or was killed";

ServerOptions checked(ServerOptions options) {
  if (options.token.empty()) throw ConfigError("rendezvous: expected a token, got ''");
  if (options.world_size < 1) {
    throw ConfigError("rendezvous: expected a world size of at least 1, got {}",
                      options.world_size);
  }
  return options;
}

struct Connection {
  explicit Connection(FileDescriptor socket)
      : channel(std::move(socket)), local_address(rendezvous::local_address(channel.socket())) {}

  FrameChannel channel;
  std::string local_address;  // to which the peer connected
  Clock::time_point since = Clock::now();
  bool open = true;  // as of the last receive()
};

}  // namespace

class RendezvousServer::EventLoop {
 public:
  explicit EventLoop(ServerOptions options)
      : options_(checked(std::move(options))),
        listener_(listen_on({.address = options_.address, .port = options_.port})),
        port_(local_port(listener_)),
        service_({.token = options_.token,
                  .run = options_.run,
                  .world_size = options_.world_size,
                  .on_join = [this](std::uint64_t connection) { note_join(connection); },
                  .on_leave = [this](int rank) { note_leave(rank); },
                  .may_return = [this](const auto& back) { return may_return(back); }},
                 [this](auto connection, auto kind, auto payload) {
                   const auto it = connections_.find(connection);
                   if (it != connections_.end()) it->second.channel.send(kind, payload);
                 }),
        thread_([this] { run(); }) {}

  ~EventLoop() {
    stop_ = true;
    wakeup_.wake();
    thread_.join();
  }

  int port() const { return port_; }

  std::string reached_at() const {
    const std::lock_guard lock(mutex_);
    return reached_at_;
  }

  bool is_present(int rank) const {
    const std::lock_guard lock(mutex_);
    return present_ranks_.contains(rank);
  }

  void keep_listening(std::function<bool(int)> is_taken) {
    const std::lock_guard lock(mutex_);
    is_taken_ = std::move(is_taken);
  }

  bool wait_until_empty(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline_in(timeout),
                               [this] { return present_ranks_.empty(); });
  }

 private:
  void run() {
    process::enter_background_thread("rendezvous");
    while (!stop_) {
      const std::vector<std::uint64_t> readable = poll_once();
      // Closed connections come first: a dead process explains the errors that other ranks report.
      for (const bool open : {false, true}) {
        for (const std::uint64_t id : readable) serve(id, open);
      }
      drop_silent_strangers();
      publish_present();
    }
  }

  // Waits for events, and receives everything that has arrived before any of it is handled. So the
  // time since a rank was last heard is right also after this process was stopped for a while.
  std::vector<std::uint64_t> poll_once() {
    std::vector<std::uint64_t> ids;
    std::vector<pollfd> polls = {{.fd = wakeup_.fd(), .events = POLLIN, .revents = 0},
                                 {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    if (Clock::now() < accept_again_) polls[1].fd = -1;
    for (const auto& [id, connection] : connections_) {
      const short out = connection.channel.has_output() ? POLLOUT : 0;
      ids.push_back(id);
      polls.push_back({.fd = connection.channel.socket().get(),
                       .events = static_cast<short>(POLLIN | out),
                       .revents = 0});
    }
    if (::poll(polls.data(), polls.size(), static_cast<int>(kPollInterval / 1ms)) <= 0) return {};

    std::vector<std::uint64_t> readable;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const short events = polls[i + 2].revents;
      Connection& connection = connections_.at(ids[i]);
      if (events & POLLOUT) connection.channel.flush();
      if (!(events & ~POLLOUT)) continue;
      connection.open = connection.channel.receive();
      service_.heard_of(ids[i]);
      readable.push_back(ids[i]);
    }
    if (polls[1].revents) accept_all();
    return readable;
  }

  void accept_all() {
    for (int taken = 0; taken < kMostAtOnce; ++taken) {
      FileDescriptor socket = accept_from(listener_);
      if (!socket) {
        // Mostly because no descriptor is free. The listener stays readable then, so it is not
        // polled for a while.
        if (errno != EAGAIN && errno != EWOULDBLOCK) accept_again_ = Clock::now() + kPollInterval;
        return;
      }
      service_.opened(next_id_, peer_address(socket));
      connections_.emplace(next_id_++, Connection(std::move(socket)));
    }
  }

  void serve(std::uint64_t id, bool open) {
    const auto it = connections_.find(id);
    if (it == connections_.end() || it->second.open != open) return;
    FrameChannel& channel = it->second.channel;
    std::string reason = kConnectionBroke;
    try {
      const auto next = [&] {
        return channel.next(service_.has_joined(id) ? kLargestPayload : kLargestHello);
      };
      while (const auto frame = next()) service_.handle(id, *frame);
      if (open) return;
    } catch (const std::exception& error) {
      reason = error.what();
      if (!service_.has_joined(id)) {
        channel.send(FrameKind::kTurnedAway, FieldWriter().text(reason).payload());
      }
    }
    service_.closed(id, reason);
    connections_.erase(id);
  }

  void drop_silent_strangers() {
    std::size_t strangers = 0;
    for (const auto& [id, _] : connections_) strangers += service_.has_joined(id) ? 0 : 1;
    const auto patience_ended = Clock::now() - options_.patience;
    const std::size_t most = kMostStrangers + 2 * static_cast<std::size_t>(options_.world_size);
    // Connections are ordered by their numbers, so the oldest are closed first.
    std::erase_if(connections_, [&](const auto& entry) {
      if (service_.has_joined(entry.first)) return false;
      if (entry.second.since > patience_ended && strangers <= most) return false;
      --strangers;
      service_.closed(entry.first, "");
      return true;
    });
  }

  void publish_present() {
    const std::lock_guard lock(mutex_);
    std::erase_if(present_ranks_, [this](int rank) { return !service_.is_present(rank); });
    if (present_ranks_.empty()) changed_.notify_all();
  }

  // Called before the rank is welcomed, because its next request may depend on this.
  void note_join(std::uint64_t connection) {
    const std::lock_guard lock(mutex_);
    present_ranks_.insert(service_.rank_of(connection));
    const std::string& address = connections_.at(connection).local_address;
    if (reached_at_.empty() && !is_loopback(address)) reached_at_ = address;
  }

  // Before the rank gets its answer: after it, a process of the next run may join with this rank.
  void note_leave(int rank) {
    const std::lock_guard lock(mutex_);
    present_ranks_.erase(rank);
  }

  bool may_return(const RendezvousServiceOptions::Return& back) const {
    const std::lock_guard lock(mutex_);
    return is_taken_ && (back.same_process || !is_taken_(back.rank));
  }

  const ServerOptions options_;
  const FileDescriptor listener_;
  const int port_;
  const process::Wakeup wakeup_;
  std::atomic<bool> stop_ = false;

  // Only the thread uses these.
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t next_id_ = 1;
  Clock::time_point accept_again_ = {};
  RendezvousService service_;

  mutable std::mutex mutex_;  // protects the following members, up to is_taken_
  std::condition_variable changed_;
  std::set<int> present_ranks_;
  std::string reached_at_;
  std::function<bool(int)> is_taken_;

  std::thread thread_;  // last: it uses all of the above
};

RendezvousServer::RendezvousServer(ServerOptions options)
    : loop_(std::make_unique<EventLoop>(std::move(options))) {
  port_ = loop_->port();
}

RendezvousServer::~RendezvousServer() = default;

int RendezvousServer::port() const {
  return port_;
}

std::string RendezvousServer::reached_at() const {
  return loop_->reached_at();
}

bool RendezvousServer::is_present(int rank) const {
  return loop_->is_present(rank);
}

void RendezvousServer::keep_listening(std::function<bool(int)> is_taken) {
  loop_->keep_listening(std::move(is_taken));
}

void RendezvousServer::close() {
  loop_.reset();
}

bool RendezvousServer::wait_until_empty(std::chrono::milliseconds timeout) {
  return loop_->wait_until_empty(timeout);
}

}  // namespace lockstep::rendezvous
