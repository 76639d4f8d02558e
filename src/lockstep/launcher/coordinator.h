// The launcher at an endpoint of a run whose number of nodes may change: the other launchers
// connect to it, and it decides by the rules of launcher/membership which of them work together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/launcher/node_messages.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launcher {

struct CoordinatorOptions {
  rendezvous::Endpoint listen = {};  // its port is known to all nodes
  std::string token = {};            // the secret of all nodes; must not be empty
  std::string run = {};              // the run's name; tells apart runs that share a token
  std::string own = {};              // the id of this launcher's node
  int least = 1;                     // nodes
  int most = 1;
  int endpoints = 1;      // of the run; with several, another node may become the coordinator
  bool may_found = true;  // see MembershipOptions
  int max_restarts = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // to wait for enough nodes
  std::chrono::milliseconds silence =
      std::chrono::seconds(10);  // a node that sends nothing is lost
  std::chrono::milliseconds last_call = std::chrono::seconds(3);  // see MembershipOptions
  std::chrono::milliseconds grace{0};                             // see MembershipOptions
  std::function<std::uint64_t()> points = [] { return 0; };  // see MembershipOptions; thread-safe
};

// Options that must be the same on all nodes. They decide which nodes may go on after a loss, so
// with different ones two halves of the nodes could both go on.
struct MembershipTerms {
  int endpoints = 1;
  int least = 1;  // nodes
  int most = 1;
};

// The text whose knowledge both sides prove in their handshake. It differs from that of a
// rendezvous, so neither can be taken for the other, and between nodes with different terms.
std::string membership_token(const std::string& token, const MembershipTerms& terms);

// One thread serves all nodes.
class Coordinator {
 public:
  // Listens when this returns. Throws CommError if it cannot.
  explicit Coordinator(CoordinatorOptions options);
  // Waits up to 2 s until the nodes that were told the end of the run have closed their
  // connections.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Ends the run, unless it is over: the nodes are told. May be called once, before the destructor.
  void end_run(const RunEnd& end);

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep::launcher
