// How the ranks of a run come to one rendezvous, whoever started them.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/base/topology.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/process/environment.h"
#include "lockstep/rendezvous/announcement.h"
#include "lockstep/rendezvous/rendezvous.h"
#include "lockstep/rendezvous/rendezvous_server.h"

namespace lockstep::comm {

// Where all ranks were told to meet, and as what.
struct RendezvousSettings {
  Topology topology;
  // Of rank 0's host, as the others know it. Loopback: the ranks are on one host, and rank 0
  // listens on loopback alone. Otherwise it listens on all interfaces (see rendezvous/network.h).
  std::string address = "127.0.0.1";
  int port = 0;
  // The run's secret, which is proved and never sent; "": LOCKSTEP_TOKEN or a file (see
  // rendezvous/token.h).
  std::string token = {};
  std::optional<std::filesystem::path> token_file = {};  // with the secret, where there is no token
  bool allow_guessable_token = false;  // on several hosts: warn of one instead of refusing it
  std::string run = {};                // the run's name, no secret
  std::string interface = {};          // of this host, or an address of it; "": LOCKSTEP_INTERFACE
};

// How long to wait.
struct WaitLimits {
  std::chrono::milliseconds answer = std::chrono::minutes(5);  // for ranks that have come
  // For ranks that have not come yet and may have work of their own to do first. Default: as above.
  std::optional<std::chrono::milliseconds> join = {};

  std::chrono::milliseconds to_join() const { return join.value_or(answer); }
};

// What a rank holds of a rendezvous: its connection, and rank 0 the servers, too.
struct RendezvousSession {
  Topology topology;
  std::string own_address = {};  // of this host, as the others reach it
  std::unique_ptr<rendezvous::Announcement> announcement = {};  // rank 0's, if all are on one host
  std::unique_ptr<rendezvous::RendezvousServer> server = {};    // rank 0's
  std::shared_ptr<rendezvous::Rendezvous> rendezvous = {};
  // Rank 0's, where all first came to: it tells a second process with the same rank so. Destroyed
  // first, because it asks the server.
  std::shared_ptr<rendezvous::RendezvousServer> entry_server = {};
};

// All throw CommError, naming the place and the ranks that did not come, where not all come within
// the time limit.

// The ranks may meet at the same place once more. Throws ConfigError where there is no token, or
// one that can be guessed, and the place can be reached from other hosts.
RendezvousSession meet_at(const RendezvousSettings& settings, const WaitLimits& limits);

// Ranks that have a communicator already tell each other through it.
RendezvousSession meet_through(Communicator& communicator, const WaitLimits& limits);

// Ranks that a launcher started: at the master's address, through the store of torchrun's agent, or
// by an announcement on their host. They may do so several times, all in the same order. Throws
// ConfigError where the launcher says too little, and as meet_at() does.
RendezvousSession meet_as_launched(const process::LaunchedPlace& place, const WaitLimits& limits);

// For c10d::TCPStoreOptions: LibTorch 2 wants libuv unless told otherwise, and Debian's is built
// without it.
template <typename StoreOptions>
StoreOptions without_libuv(StoreOptions options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
  return options;
}

}  // namespace lockstep::comm
