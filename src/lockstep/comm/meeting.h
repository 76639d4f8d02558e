// How the ranks of a run come to one meeting place, whoever started them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "lockstep/base/topology.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/launch/announcement.h"
#include "lockstep/launch/environment.h"
#include "lockstep/launch/rendezvous.h"
#include "lockstep/launch/rendezvous_server.h"

namespace lockstep::comm {

// A place that all ranks were told.
struct Meeting {
  Topology topology;
  std::string address = "127.0.0.1";  // rank 0 listens here
  int port = 0;
  std::string token = {};  // the run's; a peer without it is turned away; must not be empty
};

// A rank's hold on the meeting place, and rank 0's on the place itself.
struct Met {
  Topology topology;
  std::string own_address;                             // of this host, as the others reach it
  std::unique_ptr<launch::Announcement> announcement;  // rank 0's, where the ranks are on one host
  std::unique_ptr<launch::RendezvousServer> server;    // rank 0's
  std::shared_ptr<launch::Rendezvous> rendezvous;
};

// All throw CommError, naming the place and who did not come, where not everybody comes within the
// time limit.

// The port is free again when this returns on rank 0: the ranks may meet there once more.
Met meet_at(const Meeting& meeting, std::chrono::milliseconds timeout);

// Ranks that have a communicator already tell each other through it.
Met meet_through(Communicator& communicator, std::chrono::milliseconds timeout);

// Ranks that a launcher started: at the master's address, through the store of torchrun's agent, or
// by an announcement on their host. They may do so several times, all in the same order. Throws
// ConfigError where the launcher says too little.
Met meet_as_launched(const launch::Place& place, std::chrono::milliseconds timeout);

// For c10d::TCPStoreOptions: LibTorch 2 wants libuv unless told otherwise, and Debian's is built
// without it.
template <typename StoreOptions>
StoreOptions without_libuv(StoreOptions options) {
  if constexpr (requires { options.useLibUV; }) options.useLibUV = false;
  return options;
}

}  // namespace lockstep::comm
