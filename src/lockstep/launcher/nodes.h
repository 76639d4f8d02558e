// The launchers of several hosts as one: they agree on ranks and a meeting place for the programs,
// and know when a rank fails on another host.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/process/background.h"
#include "lockstep/rendezvous/network.h"
#include "lockstep/rendezvous/rendezvous.h"
#include "lockstep/rendezvous/rendezvous_server.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launcher {

struct NodesOptions {
  int nodes = 1;
  int node_rank = 0;
  rendezvous::Endpoint endpoint;           // node 0's, as all nodes know it
  rendezvous::NetworkChoice network = {};  // where node 0 listens, and finds itself
  std::string token = {};                  // the secret of all nodes; must not be empty
  std::string run = {};                    // the run's name; tells apart runs that share a token
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // to find each other
};

// What the programs of an attempt are told.
struct AttemptSettings {
  int first_rank = 0;  // of this node
  int world_size = 1;
  rendezvous::Endpoint master;  // where the programs meet
  std::string run_id;
  std::string token;  // of this attempt's ranks alone
};

// A rank that failed on one of the nodes.
struct RemoteFailure {
  int rank = 0;
  int shell_code = 1;
  std::string how;
};

// Tells runs apart: 16 random hexadecimal digits.
std::string random_run_id();

class Nodes {
 public:
  // Waits for the others. Throws CommError where they do not come in time.
  explicit Nodes(NodesOptions options);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  // Collective, before each attempt: how many ranks this node has, and what came of it.
  AttemptSettings meet(int attempt, int local_ranks);

  // Readable when a rank of the attempt has failed on another node, or a node is gone.
  int failure_fd() const { return failed_.fd(); }

  // This node gives up, outside of an attempt's usual end: the others are told why, and end, too.
  void abandon(const std::string& why);

  // Collective, after each attempt: the failure on this node, if there was one. Returns the first
  // failure of all nodes, or nothing where all ended well.
  std::optional<RemoteFailure> conclude(int attempt, const std::optional<RemoteFailure>& own);

 private:
  void watch();
  bool has_left(int node) const;
  std::string key(const char* name, int attempt) const;
  std::optional<RemoteFailure> failure_of(int attempt);

  NodesOptions options_;
  std::unique_ptr<rendezvous::RendezvousServer> server_;  // node 0's
  std::unique_ptr<rendezvous::Rendezvous> rendezvous_;
  FileDescriptor reserved_;  // the port of an attempt's programs, node 0's
  process::Wakeup failed_;
  process::Wakeup ending_;
  std::mutex watching_;  // for attempt_, and for waking in its name
  int attempt_ = -1;     // that is watched; -1: none
  std::thread watcher_;  // last: it uses all of the above
};

}  // namespace lockstep::launcher
