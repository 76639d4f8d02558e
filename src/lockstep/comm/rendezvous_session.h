// How the ranks of a run join one rendezvous, however they were started.
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

// Where the rendezvous of all ranks is, and which rank this process is.
struct RendezvousSettings {
  Topology topology;
  // The address of rank 0's host, as the other ranks know it. If it is loopback, the ranks are on
  // one host, and rank 0 listens on loopback only. Otherwise rank 0 listens on all interfaces (see
  // rendezvous/network.h).
  std::string address = "127.0.0.1";
  int port = 0;
  // The run's secret. A rank proves that it knows the secret and never sends it. If empty, it is
  // taken from LOCKSTEP_TOKEN or a file (see rendezvous/token.h).
  std::string token = {};
  std::optional<std::filesystem::path> token_file = {};  // with the secret, if `token` is empty
  bool allow_guessable_token = false;  // on several hosts: warn about one instead of refusing it
  std::string run = {};                // the run's name, which is not secret
  std::string interface = {};          // of this host, or its address; "": LOCKSTEP_INTERFACE
};

// How long to wait for other ranks.
struct WaitLimits {
  std::chrono::milliseconds answer = std::chrono::minutes(5);  // for ranks that have joined
  // For ranks that have not joined yet and may have other work to do first. Default: `answer`.
  std::optional<std::chrono::milliseconds> join = {};

  std::chrono::milliseconds to_join() const { return join.value_or(answer); }
};

// A rank's part of a rendezvous: its connection. Rank 0 has the servers, too.
struct RendezvousSession {
  Topology topology;
  std::string own_address = {};  // of this host, as other ranks reach it
  std::unique_ptr<rendezvous::Announcement> announcement = {};  // rank 0's, if all are on one host
  std::unique_ptr<rendezvous::RendezvousServer> server = {};    // rank 0's
  std::shared_ptr<rendezvous::Rendezvous> rendezvous = {};
  // Rank 0's server at the address in the settings, to which all ranks connect first. It stays to
  // refuse a second process with the same rank. It is destroyed first, because it uses `server`.
  std::shared_ptr<rendezvous::RendezvousServer> entry_server = {};
};

// All of these are collective. They throw CommError, which names the address and the missing ranks,
// if not all ranks join within the time limit.

// Joins the rendezvous at the address in the settings. The ranks may do so again at the same
// address later. Throws ConfigError if other hosts can reach the address and the token is missing
// or can be guessed.
RendezvousSession meet_at(const RendezvousSettings& settings, const WaitLimits& limits);

// For ranks that already have a communicator. Rank 0 sends its port through it.
RendezvousSession meet_through(Communicator& communicator, const WaitLimits& limits);

// For ranks that a launcher started. They find rank 0 at the master's address, through the store of
// torchrun's agent, or by an announcement on their host. They may call this several times, all in
// the same order. Throws ConfigError if the launcher did not set enough variables, and as meet_at()
// does.
RendezvousSession meet_as_launched(const process::LaunchedPlace& place, const WaitLimits& limits);

// For c10d::TCPStoreOptions. LibTorch 2 uses libuv by default, but Debian's LibTorch is built
// without it.
template <typename StoreOptions>
StoreOptions without_libuv(StoreOptions options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
  return options;
}

}  // namespace lockstep::comm
