#include "lockstep/comm/rendezvous_session.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/process/host_group.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/network.h"
#include "lockstep/rendezvous/socket.h"
#include "lockstep/rendezvous/token.h"

namespace lockstep::comm {
namespace {

using rendezvous::Rendezvous;
using rendezvous::RendezvousServer;
using std::chrono::milliseconds;

// How rank 0 sends the port of its rendezvous server, which it chose itself, to the other ranks.
struct AddressExchange {
  std::string place;  // for messages
  std::function<void(const std::string&)> tell;
  std::function<std::string()> ask;
  std::function<void()> check = [] {};  // throws if it is known that a rank will not join
};

// Where that server is, and how its ranks recognise each other.
struct ServerLocation {
  std::string address = rendezvous::kLoopback;  // of rank 0's host, as other ranks know it
  rendezvous::NetworkChoice network = {};
  // The secret that all ranks have. The server's own token is derived from it. If it is empty, the
  // server has a random token, and we trust the exchange to give it only to the ranks of the run.
  std::string token = {};
  std::string run = {};
};

bool has_any(const process::Environment& environment, const std::vector<const char*>& names) {
  return std::ranges::any_of(names, [&](const char* name) {
    const auto found = environment.find(name);
    return found != environment.end() && !found->second.empty();
  });
}

ServerLocation location_of(const RendezvousSettings& settings,
                           const process::Environment& environment) {
  return {.address = settings.address,
          .network = rendezvous::choose_network(
              {.address = settings.address, .interface = settings.interface}, environment),
          .run = settings.run};
}

// Ranks that are known to be on one host use loopback, whatever the name of the host is.
std::string master_address(const process::LaunchedPlace& place) {
  const Topology& topology = place.topology;
  const bool one_host = place.local_size_known && topology.local_size == topology.world_size;
  return one_host ? rendezvous::kLoopback : *place.master_address;
}

// A launcher gives every rendezvous of a run the same name, so a counter tells them apart. It is
// static because it counts those of the process.
std::string next_name(const process::LaunchedPlace& place) {
  static std::atomic<int> meetings = 0;
  return fmt::format("{}-{}", place.run_id, ++meetings);
}

// Waits until all ranks have joined.
void await_all_ranks(const Rendezvous& rendezvous, const AddressExchange& exchange,
                     const WaitLimits& limits) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    std::vector<int> arrived, missing;
    const auto peers = rendezvous.peers();
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      (peers[rank].joined ? arrived : missing).push_back(static_cast<int>(rank));
    }
    if (missing.empty()) return;
    exchange.check();
    if (const auto failure = rendezvous.failure()) {
      throw WorkerError(process::describe_failure(failure->rank, "", failure->reason));
    }
    if (peers[0].silent > limits.answer) {
      throw CommError(
          "rank 0: the rendezvous at {} has not answered for {}: its process is stopped "
          "or hangs",
          exchange.place, format_duration(limits.answer));
    }
    if (std::chrono::steady_clock::now() - start > limits.to_join()) {
      throw CommError("rendezvous at {}: waited {}: {} arrived, {} did not", exchange.place,
                      format_duration(limits.to_join()), process::list_ranks(arrived),
                      process::list_ranks(missing));
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

// This host's address, as other ranks reach it. It is the local address of this rank's connection
// to rank 0. Rank 0, and the ranks of its host that reach it by loopback, use the address at which
// ranks of other hosts reached rank 0.
std::string own_address(const RendezvousSession& session, const ServerLocation& location,
                        const WaitLimits& limits) {
  constexpr const char* kKey = "address of rank 0's host";
  if (session.server != nullptr) {
    const std::string reached = session.server->reached_at();
    session.rendezvous->set(kKey, reached.empty() ? rendezvous::kLoopback : reached);
  }
  if (location.network.chosen) return *location.network.chosen;
  const std::string& own = session.rendezvous->local_address();
  return rendezvous::is_loopback(own) ? session.rendezvous->get(kKey, limits.answer) : own;
}

RendezvousSession meet_by(const AddressExchange& exchange, const Topology& topology,
                          const ServerLocation& location, const WaitLimits& limits) {
  RendezvousSession session{.topology = topology};
  const bool first = topology.rank == 0;
  std::string salt = rendezvous::random_token();
  int port = 0;
  // If the ranks share a secret, only the salt is sent, which need not be secret. Otherwise the
  // salt is the token.
  const auto token = [&] {
    return location.token.empty() ? salt
                                  : rendezvous::derive_token(location.token, "place " + salt);
  };
  if (first) {
    session.server = std::make_unique<RendezvousServer>(
        rendezvous::ServerOptions{.address = location.network.listen,
                                  .token = token(),
                                  .run = location.run,
                                  .world_size = topology.world_size});
    port = session.server->port();
    exchange.tell(fmt::format("{} {}", port, salt));
  } else {
    const std::string told = exchange.ask();
    std::istringstream words(told);
    if (!(words >> port >> salt)) {
      throw CommError(
          "expected the port and the salt of rank 0's rendezvous, got something "
          "else from {}",
          exchange.place);
    }
  }
  session.rendezvous = std::make_shared<Rendezvous>(
      rendezvous::RendezvousOptions{.address = first ? location.network.own : location.address,
                                    .port = port,
                                    .token = token(),
                                    .run = location.run,
                                    .rank = topology.rank,
                                    .world_size = topology.world_size,
                                    .timeout = limits.answer});
  await_all_ranks(*session.rendezvous, exchange, limits);
  session.own_address = own_address(session, location, limits);
  return session;
}

RendezvousSession meet_through_agent(const process::LaunchedPlace& place,
                                     const WaitLimits& limits) {
  const rendezvous::Endpoint master{.address = *place.master_address, .port = *place.master_port};
  const std::string where = rendezvous::to_string(master);
  // The store does not throw lockstep::Error.
  const auto naming = [&](const auto& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      const std::string text = error.what();
      throw CommError("the store of torchrun's agent at {}: {}", where,
                      text.substr(0, text.find('\n')));
    }
  };
  const auto store = naming([&] {
    auto options = without_libuv(c10d::TCPStoreOptions());
    options.port = static_cast<std::uint16_t>(*place.master_port);
    options.isServer = false;
    options.timeout = limits.to_join();
    return std::make_unique<c10d::TCPStore>(*place.master_address, options);
  });
  const std::string key = "lockstep/" + next_name(place);
  const AddressExchange exchange{
      .place = where,
      .tell =
          [&](const std::string& text) {
            naming([&] { store->set(key, std::vector<std::uint8_t>(text.begin(), text.end())); });
          },
      .ask =
          [&] {
            const auto bytes = naming([&] { return store->get(key); });
            return std::string(bytes.begin(), bytes.end());
          }};
  // The agent's store is not secret, but a user of torchrun trusts it, so a token is optional.
  const process::Environment environment = process::current_environment();
  const bool has_token =
      has_any(environment, {rendezvous::kTokenVariable, rendezvous::kTokenFileVariable});
  ServerLocation location =
      location_of({.address = master_address(place), .run = place.run_id}, environment);
  if (has_token) {
    location.token = rendezvous::resolve_token(
        {.run = place.run_id, .place = where, .beyond_host = location.network.beyond_host},
        environment);
  }
  return meet_by(exchange, place.topology, location, limits);
}

RendezvousSession meet_by_announcement(const process::LaunchedPlace& place,
                                       const WaitLimits& limits) {
  const std::string name = fmt::format("{}-{}", ::getuid(), next_name(place));
  std::unique_ptr<rendezvous::Announcement> announcement;
  const AddressExchange exchange{
      .place = "'" + name + "'",
      .tell =
          [&](const std::string& text) {
            announcement = std::make_unique<rendezvous::Announcement>(name, text);
          },
      .ask = [&] { return rendezvous::read_announcement(name, limits.to_join()); }};
  RendezvousSession session = meet_by(exchange, place.topology, {.run = place.run_id}, limits);
  session.announcement = std::move(announcement);
  return session;
}

// The entry servers of this process, by port. Global because a port belongs to the process. They
// keep listening when all ranks have joined. If the process opens a rendezvous at the same port
// again, it closes the earlier server first.
class EntryServers {
 public:
  static void close(int port) {
    const std::lock_guard lock(mutex());
    if (const auto server = servers()[port].lock()) server->close();
    servers().erase(port);
  }
  static void add(const std::shared_ptr<RendezvousServer>& server) {
    const std::lock_guard lock(mutex());
    servers()[server->port()] = server;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<int, std::weak_ptr<RendezvousServer>>& servers() {
    static std::map<int, std::weak_ptr<RendezvousServer>> all;
    return all;
  }
};

}  // namespace

// The server at the known port only gives out the port of a second server, so that the ranks can
// use the known port for a later rendezvous. Rank 0 keeps listening at the known port, in order to
// refuse a process whose rank is taken.
RendezvousSession meet_at(const RendezvousSettings& settings, const WaitLimits& limits) {
  const process::Environment environment = process::current_environment();
  ServerLocation location = location_of(settings, environment);
  const std::string where = rendezvous::to_string(
      rendezvous::Endpoint{.address = settings.address, .port = settings.port});
  location.token = rendezvous::resolve_token({.given = settings.token,
                                              .file = settings.token_file,
                                              .run = settings.run,
                                              .place = where,
                                              .beyond_host = location.network.beyond_host,
                                              .allow_guessable = settings.allow_guessable_token},
                                             environment);
  const bool first = settings.topology.rank == 0;
  std::shared_ptr<RendezvousServer> server;
  if (first) {
    EntryServers::close(settings.port);
    server = std::make_shared<RendezvousServer>(
        rendezvous::ServerOptions{.address = location.network.listen,
                                  .port = settings.port,
                                  .token = location.token,
                                  .run = settings.run,
                                  .world_size = settings.topology.world_size});
  }
  Rendezvous rendezvous({.address = first ? location.network.own : settings.address,
                         .port = first ? server->port() : settings.port,
                         .token = location.token,
                         .run = settings.run,
                         .rank = settings.topology.rank,
                         .world_size = settings.topology.world_size,
                         .timeout = limits.answer,
                         .join_timeout = limits.to_join()});
  const AddressExchange exchange{
      .place = where,
      .tell = [&](const std::string& text) { rendezvous.set("place", text); },
      .ask = [&] { return rendezvous.get("place", limits.answer); }};
  RendezvousSession session = meet_by(exchange, settings.topology, location, limits);
  rendezvous.leave();
  if (first) {
    if (!server->wait_until_empty(limits.answer)) {
      throw CommError("rendezvous at {}: waited {} for all ranks to disconnect", where,
                      format_duration(limits.answer));
    }
    server->keep_listening(
        [main = session.server.get()](int rank) { return main->is_present(rank); });
    EntryServers::add(server);
    session.entry_server = std::move(server);
  }
  return session;
}

RendezvousSession meet_through(Communicator& communicator, const WaitLimits& limits) {
  const AddressExchange exchange{
      .place = communicator.name(),
      .tell = [&](const std::string& text) { communicator.broadcast_bytes(text, 0); },
      .ask = [&] { return communicator.broadcast_bytes("", 0); },
      .check = [&] { communicator.check(); }};
  return meet_by(exchange, communicator.topology(), {}, limits);
}

RendezvousSession meet_as_launched(const process::LaunchedPlace& place, const WaitLimits& limits) {
  const bool one_host = place.topology.local_size == place.topology.world_size;
  if (place.master_address && place.master_port) {
    constexpr std::size_t kLongestName = 60;  // that an announcement has room for
    const bool has_room = place.run_id.size() <= kLongestName;
    if (place.agent_store && one_host && place.local_size_known && has_room) {
      // The store of another version of PyTorch may not understand ours. On one host it is not
      // needed. Its port tells runs apart to which the user gave the same name.
      process::LaunchedPlace named = place;
      named.run_id = fmt::format("{}:{}", place.run_id, *place.master_port);
      return meet_by_announcement(named, limits);
    }
    if (place.agent_store) return meet_through_agent(place, limits);
    return meet_at({.topology = place.topology,
                    .address = master_address(place),
                    .port = *place.master_port,
                    .run = place.run_id},
                   limits);
  }
  if (one_host && !place.run_id.empty()) return meet_by_announcement(place, limits);
  throw ConfigError(
      "this is rank {} of {} on several hosts: set MASTER_ADDR and MASTER_PORT to the address and "
      "port of rank 0",
      place.topology.rank, place.topology.world_size);
}

}  // namespace lockstep::comm
