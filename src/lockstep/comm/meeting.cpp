#include "lockstep/comm/meeting.h"

#include <atomic>
#include <functional>
#include <random>
#include <sstream>
#include <thread>

#include <netdb.h>
#include <sys/socket.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/socket.h"
#include "lockstep/launch/team.h"

namespace lockstep::comm {
namespace {

using launch::Rendezvous;
using launch::RendezvousServer;
using std::chrono::milliseconds;

constexpr const char* kLoopback = "127.0.0.1";

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

// The address of this host that packets to `address` leave from.
std::string address_towards(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), "9", &hints, &found) != 0) {
    throw CommError("address '{}': no such host", address);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    // Connecting a datagram socket sends nothing; it only asks for the way.
    const FileDescriptor probe(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || ::connect(probe.get(), at->ai_addr, at->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    char text[NI_MAXHOST] = {};
    if (::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text, nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      return text;
    }
  }
  throw CommError("address '{}': there is no way to it from this host", address);
}

// Rank 0 opens a place of its own choice and tells the others by whatever they have in common.
struct Courier {
  std::string place;  // for messages
  std::function<void(const std::string&)> tell;
  std::function<std::string()> ask;
  std::function<void()> check = [] {};  // throws where it is known that somebody will not come
};

// A launcher's names are the same for every meeting of a run; so manieth is this one.
std::string next_name(const launch::Place& place) {
  static std::atomic<int> meetings = 0;
  return fmt::format("{}-{}", place.run_id, ++meetings);
}

// Waits until all ranks have joined.
void await_everybody(const Rendezvous& rendezvous, const Courier& courier, milliseconds timeout) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    std::vector<int> came, missing;
    const auto peers = rendezvous.peers();
    for (std::size_t rank = 0; rank < peers.size(); ++rank) {
      (peers[rank].joined ? came : missing).push_back(static_cast<int>(rank));
    }
    if (missing.empty()) return;
    courier.check();
    if (const auto failure = rendezvous.failure()) {
      throw WorkerError(launch::describe_failure(failure->rank, "", failure->reason));
    }
    if (std::chrono::steady_clock::now() - start > timeout) {
      throw CommError("rendezvous at {}: waited {}: {} came, {} did not", courier.place,
                      format_duration(std::chrono::duration<double>(timeout).count()),
                      launch::list_ranks(came), launch::list_ranks(missing));
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

Met meet_by(const Courier& courier, const Topology& topology, const std::string& own_address,
            milliseconds timeout) {
  Met met{.topology = topology, .own_address = own_address};
  Meeting meeting{.topology = topology, .address = own_address};
  if (topology.rank == 0) {
    meeting.token = random_token();
    met.server = std::make_unique<RendezvousServer>(launch::ServerOptions{
        .address = own_address, .token = meeting.token, .world_size = topology.world_size});
    meeting.port = met.server->port();
    courier.tell(fmt::format("{} {} {}", meeting.address, meeting.port, meeting.token));
  } else {
    const std::string told = courier.ask();
    std::istringstream words(told);
    if (!(words >> meeting.address >> meeting.port >> meeting.token)) {
      throw CommError("expected rank 0's address, port and token, was told '{}'", told);
    }
  }
  met.rendezvous =
      std::make_shared<Rendezvous>(launch::RendezvousOptions{.address = meeting.address,
                                                             .port = meeting.port,
                                                             .token = meeting.token,
                                                             .rank = topology.rank,
                                                             .world_size = topology.world_size,
                                                             .timeout = timeout});
  await_everybody(*met.rendezvous, courier, timeout);
  return met;
}

Met meet_through_agent(const launch::Place& place, milliseconds timeout) {
  const std::string where = launch::to_string(
      launch::Endpoint{.address = *place.master_address, .port = *place.master_port});
  // What the store throws is no Error.
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
    options.timeout = timeout;
    return std::make_unique<c10d::TCPStore>(*place.master_address, options);
  });
  const std::string key = "lockstep/" + next_name(place);
  const Courier courier{
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
  return meet_by(courier, place.topology, address_towards(*place.master_address), timeout);
}

Met meet_by_announcement(const launch::Place& place, milliseconds timeout) {
  const std::string name = fmt::format("{}-{}", ::getuid(), next_name(place));
  std::unique_ptr<launch::Announcement> announcement;
  const Courier courier{.place = "'" + name + "'",
                        .tell =
                            [&](const std::string& text) {
                              announcement = std::make_unique<launch::Announcement>(name, text);
                            },
                        .ask = [&] { return launch::read_announcement(name, timeout); }};
  Met met = meet_by(courier, place.topology, kLoopback, timeout);
  met.announcement = std::move(announcement);
  return met;
}

}  // namespace

// The place that all know serves only to tell of another one, and is closed before anybody could
// come to the next meeting there.
Met meet_at(const Meeting& meeting, milliseconds timeout) {
  std::unique_ptr<RendezvousServer> server;
  int port = meeting.port;
  if (meeting.topology.rank == 0) {
    server = std::make_unique<RendezvousServer>(
        launch::ServerOptions{.address = meeting.address,
                              .port = meeting.port,
                              .token = meeting.token,
                              .world_size = meeting.topology.world_size});
    port = server->port();
  }
  Rendezvous rendezvous({.address = meeting.address,
                         .port = port,
                         .token = meeting.token,
                         .rank = meeting.topology.rank,
                         .world_size = meeting.topology.world_size,
                         .timeout = timeout});
  const Courier courier{
      .place = launch::to_string(launch::Endpoint{.address = meeting.address, .port = port}),
      .tell = [&](const std::string& text) { rendezvous.set("place", text); },
      .ask = [&] { return rendezvous.get("place", timeout); }};
  Met met = meet_by(courier, meeting.topology, address_towards(meeting.address), timeout);
  rendezvous.leave();
  if (server != nullptr && !server->wait_until_empty(timeout)) {
    throw CommError("rendezvous at {}: waited {} for all ranks to go on", courier.place,
                    format_duration(std::chrono::duration<double>(timeout).count()));
  }
  return met;
}

Met meet_through(Communicator& communicator, milliseconds timeout) {
  const Courier courier{
      .place = communicator.name(),
      .tell = [&](const std::string& text) { communicator.broadcast_bytes(text, 0); },
      .ask = [&] { return communicator.broadcast_bytes("", 0); },
      .check = [&] { communicator.check(); }};
  return meet_by(courier, communicator.topology(), kLoopback, timeout);
}

Met meet_as_launched(const launch::Place& place, milliseconds timeout) {
  if (place.master_address && place.master_port) {
    if (place.agent_store) return meet_through_agent(place, timeout);
    // Who sets the variables by hand has no name for the run.
    const std::string token = place.run_id.empty()
                                  ? fmt::format("{}:{}", *place.master_address, *place.master_port)
                                  : place.run_id;
    return meet_at({.topology = place.topology,
                    .address = *place.master_address,
                    .port = *place.master_port,
                    .token = token},
                   timeout);
  }
  const bool one_host = place.topology.local_size == place.topology.world_size;
  if (one_host && !place.run_id.empty()) return meet_by_announcement(place, timeout);
  throw ConfigError(
      "this is rank {} of {} on several hosts: set MASTER_ADDR and MASTER_PORT to where rank 0 is "
      "to be met",
      place.topology.rank, place.topology.world_size);
}

}  // namespace lockstep::comm
