#include "lockstep/launcher/nodes.h"

#include <charconv>
#include <random>
#include <vector>

#include <poll.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launcher/node_messages.h"
#include "lockstep/rendezvous/handshake.h"

namespace lockstep::launcher {
namespace {

constexpr int kWatchMilliseconds = 100;
constexpr auto kPatience = std::chrono::milliseconds(500);

std::string encode_failure(const AttemptFailure& failure) {
  rendezvous::FieldWriter fields;
  write_failure(fields, failure);
  return fields.payload();
}

AttemptFailure decode_failure(const std::string& text) {
  rendezvous::FieldReader fields(text);
  return read_failure(fields);
}

AttemptFailure gone(const rendezvous::PeerFailure& failure) {
  return {.how = fmt::format("the launcher of node {} is gone: {}", failure.rank, failure.reason)};
}

// A number that another node's launcher sent.
int number_in(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  throw CommError("another node's launcher sent '{}', expected a number", printable(text));
}

}  // namespace

std::string random_run_id() {
  std::random_device device;
  return to_hex((static_cast<std::uint64_t>(device()) << 32) | device());
}

Nodes::Nodes(NodesOptions options) : options_(std::move(options)) {
  if (options_.node_rank == 0) {
    server_ = std::make_unique<rendezvous::RendezvousServer>(
        rendezvous::ServerOptions{.address = options_.network.listen,
                                  .port = options_.endpoint.port,
                                  .token = options_.token,
                                  .run = options_.run,
                                  .world_size = options_.nodes});
  }
  const bool first = options_.node_rank == 0;
  rendezvous_ = std::make_unique<rendezvous::Rendezvous>(rendezvous::RendezvousOptions{
      .address = first ? options_.network.own : options_.endpoint.address,
      .port = options_.endpoint.port,
      .token = options_.token,
      .run = options_.run,
      .rank = options_.node_rank,
      .world_size = options_.nodes,
      .timeout = options_.silence,
      .join_timeout = options_.timeout});
  watcher_ = std::thread([this] { watch(); });
}

Nodes::~Nodes() {
  ending_.wake();
  watcher_.join();
  rendezvous_->leave();
  if (server_) server_->wait_until_empty(std::chrono::seconds(2));
}

std::string Nodes::key(const char* name, int attempt) const {
  return fmt::format("{}/{}", name, attempt);
}

// Waits for a key. The wait is cut into pieces, because silence of a node is not a failure to the
// rendezvous.
std::string Nodes::await(const std::string& key) const {
  const auto deadline = rendezvous::deadline_in(options_.timeout);
  while (true) {
    try {
      return rendezvous_->get(key, kPatience);
    } catch (const CommError&) {
      if (const auto failure = lost_node()) throw CommError(gone(*failure).how);
      if (rendezvous::Clock::now() >= deadline) throw;
    }
  }
}

AttemptSettings Nodes::meet(int attempt, int local_ranks) {
  rendezvous_->set(fmt::format("ranks/{}/{}", attempt, options_.node_rank),
                   std::to_string(local_ranks));
  AttemptSettings settings{.first_rank = 0,
                           .world_size = 0,
                           .master = options_.endpoint,
                           .run_id = {},
                           .token = {},
                           .node_rank = options_.node_rank,
                           .nodes = options_.nodes};
  for (int node = 0; node < options_.nodes; ++node) {
    if (node == options_.node_rank) settings.first_rank = settings.world_size;
    try {
      settings.world_size += number_in(await(fmt::format("ranks/{}/{}", attempt, node)));
    } catch (const CommError& error) {
      if (lost_node()) throw;
      throw CommError("node {} did not come in {}: {}", node, format_duration(options_.timeout),
                      error.what());
    }
  }
  // The programs need another port: the endpoint's own port is used by the launchers' rendezvous.
  if (options_.node_rank == 0) {
    reserved_ = rendezvous::reserve_port({.address = options_.network.listen, .port = 0});
    rendezvous_->set(key("run", attempt), random_run_id());
    rendezvous_->set(key("port", attempt), std::to_string(rendezvous::local_port(reserved_)));
  }
  settings.run_id = await(key("run", attempt));
  settings.token = rendezvous::derive_token(options_.token, "ranks of run " + settings.run_id);
  settings.master.port = number_in(await(key("port", attempt)));
  const std::lock_guard lock(watching_);
  failed_.clear();
  attempt_ = attempt;
  return settings;
}

std::optional<AttemptFailure> Nodes::failure_of(int attempt) {
  if (const auto failure = lost_node()) return gone(*failure);
  const auto told = rendezvous_->try_get(key("failed", attempt));
  if (!told) return std::nullopt;
  return decode_failure(*told);
}

std::optional<AttemptFailure> Nodes::conclude(int attempt,
                                              const std::optional<AttemptFailure>& own) {
  {
    const std::lock_guard lock(watching_);
    attempt_ = -1;
  }
  if (own && rendezvous_->add(key("failures", attempt), 1) == 1) {
    rendezvous_->set(key("failed", attempt),
                     encode_failure(*own));  // the first failure is the cause
  }
  rendezvous_->set(fmt::format("done/{}/{}", attempt, options_.node_rank),
                   own ? encode_failure(*own) : std::string());
  // There is no time limit: ranks of other nodes may train for hours after those of this node
  // ended.
  std::optional<AttemptFailure> cause;
  for (int node = 0; node < options_.nodes; ++node) {
    const std::string done = fmt::format("done/{}/{}", attempt, node);
    std::optional<std::string> told;
    while (!(told = rendezvous_->try_get(done))) {
      if (lost_node()) return failure_of(attempt);
      if (has_left(node) && !rendezvous_->try_get(done)) {
        return AttemptFailure{.how = fmt::format("the launcher of node {} has left", node)};
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(kWatchMilliseconds));
    }
    if (told->empty()) continue;
    const AttemptFailure failure = decode_failure(*told);
    if (!cause || failure.blame > cause->blame) cause = failure;
  }
  const auto first = failure_of(attempt);
  return first && (!cause || first->rank < 0 || first->blame >= cause->blame) ? first : cause;
}

bool Nodes::others_ended(int attempt) {
  try {
    for (int node = 0; node < options_.nodes; ++node) {
      if (node == options_.node_rank) continue;
      const auto told = rendezvous_->try_get(fmt::format("done/{}/{}", attempt, node));
      if (!told || !told->empty()) return false;
    }
    return true;
  } catch (const CommError&) {
    return false;  // the watcher sees that the rendezvous is gone
  }
}

// The first node that is gone, or that is silent although the connection still stands.
std::optional<rendezvous::PeerFailure> Nodes::lost_node() const {
  if (auto failure = rendezvous_->failure()) return failure;
  const std::vector<rendezvous::Peer> peers = rendezvous_->peers();
  for (std::size_t node = 0; node < peers.size(); ++node) {
    const rendezvous::Peer& peer = peers[node];
    if (!peer.joined || peer.left || peer.silent < options_.silence) continue;
    return rendezvous::PeerFailure{
        .rank = static_cast<int>(node),
        .reason =
            fmt::format("it has sent nothing for {}: its host is down, or the network between "
                        "the nodes is cut",
                        format_duration(peer.silent))};
  }
  return std::nullopt;
}

bool Nodes::has_left(int node) const {
  return rendezvous_->peers()[static_cast<std::size_t>(node)].left;
}

void Nodes::abandon(const std::string& why) {
  rendezvous_->fail(why);
}

void Nodes::watch() {
  process::enter_background_thread("lockstep-nodes");
  for (pollfd ending{ending_.fd(), POLLIN, 0}; ::poll(&ending, 1, kWatchMilliseconds) == 0;) {
    // Locked during the check: a failure of this attempt must not end the next one.
    const std::lock_guard lock(watching_);
    if (attempt_ < 0) continue;
    try {
      if (failure_of(attempt_)) failed_.wake();
    } catch (const CommError&) {
      failed_.wake();  // without the rendezvous the attempt cannot succeed
    }
  }
}

}  // namespace lockstep::launcher
