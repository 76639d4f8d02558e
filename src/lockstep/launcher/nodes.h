// Connects the launchers of several hosts: they agree on the ranks and on the address of the
// programs' rendezvous, and learn when a rank fails on another host.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/launcher/restarts.h"
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
  rendezvous::NetworkChoice network = {};  // where node 0 listens, and connects to itself
  std::string token = {};                  // the secret of all nodes; must not be empty
  std::string run = {};                    // the run's name; tells apart runs that share a token
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // for all launchers to connect
  // A node whose launcher sends nothing for this time is lost. The kernel would notice a cut link
  // only after 30 s.
  std::chrono::milliseconds silence = std::chrono::seconds(10);
};

// The settings that the programs of one attempt get.
struct AttemptSettings {
  int first_rank = 0;  // of this node
  int world_size = 1;
  rendezvous::Endpoint master;  // address of the programs' rendezvous
  std::string run_id;
  std::string token;  // only for the ranks of this attempt
  int node_rank = 0;
  int nodes = 1;
  std::optional<int> shards = {};   // only if the number of nodes may change
  std::optional<int> threads = {};  // of each rank; the same
};

// Tells runs apart: 16 random hexadecimal digits.
std::string random_run_id();

class Nodes {
 public:
  // Connects to node 0's launcher. Throws CommError if it cannot be reached within the time limit.
  explicit Nodes(NodesOptions options);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  // Collective, before each attempt: each node passes its number of ranks. Returns the settings
  // that all nodes have agreed on. Throws CommError if a node does not call this within the time
  // limit.
  AttemptSettings meet(int attempt, int local_ranks);

  // Readable when a rank of the attempt has failed on another node, or another launcher is gone.
  int failure_fd() const { return failed_.fd(); }

  // Whether the ranks of all other nodes have ended well in this attempt.
  bool others_ended(int attempt);

  // This node gives up before the usual end of an attempt. The other nodes are told why, and end,
  // too.
  void abandon(const std::string& why);

  // Collective, after each attempt: each node passes its own failure, if there was one. Returns the
  // same failure on all nodes: the first one that a rank is certainly to blame for, else the first
  // one. Nothing if all ranks ended well.
  std::optional<AttemptFailure> conclude(int attempt, const std::optional<AttemptFailure>& own);

 private:
  void watch();
  std::optional<rendezvous::PeerFailure> lost_node() const;
  bool has_left(int node) const;
  std::string key(const char* name, int attempt) const;
  std::string await(const std::string& key) const;
  std::optional<AttemptFailure> failure_of(int attempt);

  NodesOptions options_;
  std::unique_ptr<rendezvous::RendezvousServer> server_;  // only on node 0
  std::unique_ptr<rendezvous::Rendezvous> rendezvous_;
  FileDescriptor reserved_;  // the port for an attempt's programs; only on node 0
  process::Wakeup failed_;
  process::Wakeup ending_;
  std::mutex watching_;  // protects attempt_, and failed_ while the attempt is checked
  int attempt_ = -1;     // the attempt that is watched; -1: none
  std::thread watcher_;  // last: it uses all of the above
};

}  // namespace lockstep::launcher
