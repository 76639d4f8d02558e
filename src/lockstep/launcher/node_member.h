// A launcher's part in a run whose number of nodes may change: it finds the coordinator among the
// endpoints, becomes one at its own endpoint, and looks again when the coordinator is lost.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "lockstep/launcher/coordinator.h"
#include "lockstep/launcher/node_messages.h"
#include "lockstep/process/background.h"
#include "lockstep/rendezvous/frame_channel.h"
#include "lockstep/rendezvous/handshake.h"
#include "lockstep/rendezvous/network.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launcher {

// One of the places where the nodes can meet.
struct NodeEndpoint {
  rendezvous::Endpoint address = {};       // as all nodes know it
  rendezvous::NetworkChoice network = {};  // where a launcher listens that has this endpoint
};

struct NodeMemberOptions {
  std::vector<NodeEndpoint> endpoints = {};  // the same list on all nodes
  // The endpoint that this node has. If it is not given, those whose address is one of this host's.
  std::optional<int> own_endpoint = {};
  std::string token = {};
  std::string run = {};
  int ranks = 1;  // of this node
  int cores = 1;
  int least = 1;  // nodes
  int most = 1;
  int max_restarts = 0;
  // How long to look for a coordinator, and how long a coordinator waits for enough nodes.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  std::chrono::milliseconds silence = std::chrono::seconds(10);  // see CoordinatorOptions
  std::chrono::milliseconds last_call = std::chrono::seconds(3);
  std::chrono::milliseconds grace{0};  // from the order to end to the end of the ranks
  std::function<std::uint64_t()> points = [] { return 0; };
  std::function<void(const std::string& line)> say = [](const std::string&) {};  // for the user
};

// A generation that begins, and where its ranks meet.
struct BegunGeneration {
  GenerationPart part = {};
  rendezvous::Endpoint master = {};
};

class NodeMember {
 public:
  explicit NodeMember(NodeMemberOptions options);
  // Leaves the run.
  ~NodeMember();
  NodeMember(const NodeMember&) = delete;
  NodeMember& operator=(const NodeMember&) = delete;

  // Waits for the next generation, or for the end of the run. The wait is bounded by the timeouts
  // of this node and of the coordinator.
  std::variant<BegunGeneration, RunEnd> next();

  // Readable when the ranks of the generation must be stopped.
  int stop_fd() const { return stop_.fd(); }

  // Whether the ranks of all other nodes have ended well in this generation.
  bool others_ended(int generation);

  // Must be called when all ranks of the generation have ended on this node. Before this, the node
  // joins no other coordinator, so a node never has ranks of two generations.
  void ended(GenerationOutcome outcome);

  // This node leaves the run. The other nodes are told why. If no other node can coordinate,
  // because the run has one endpoint and it is this node's, the run ends for them with this exit
  // code.
  void leave(const std::string& why, int code = 1);

 private:
  struct Found;

  void run();
  void look_for_coordinator();
  std::optional<Found> try_endpoint(std::size_t index);
  void open_own(std::size_t index);
  void serve();
  void take(const rendezvous::Frame& frame);
  void lose(const std::string& how, bool seen_to_end);
  void forget_generation();
  void end_run(const std::string& why);
  std::string nothing_found(bool has_few) const;

  const NodeMemberOptions options_;
  const rendezvous::Handshake handshake_;
  process::Wakeup stop_;
  process::Wakeup wakeup_;

  // Only the thread uses these.
  std::vector<std::unique_ptr<Coordinator>> coordinators_;  // by endpoint; null: not this node's
  std::optional<rendezvous::FrameChannel> channel_;
  std::size_t endpoint_ = 0;  // that the channel is connected to
  // Since when this node looks for a coordinator with enough nodes.
  std::optional<rendezvous::Clock::time_point> looking_since_ = {};
  rendezvous::Clock::time_point last_beat_ = {};
  rendezvous::Clock::duration silent_{0};
  NodeDescription self_;
  std::optional<GenerationPart> prepared_;
  bool began_here_ = false;  // self_.begun was begun by the coordinator of the channel
  std::string cause_ = {};   // why the last endpoint could not be joined
  std::optional<std::string> refused_ = {};  // another attempt would be refused, too

  std::mutex mutex_;  // protects the following members
  std::condition_variable changed_;
  std::optional<BegunGeneration> begun_;
  std::optional<RunEnd> over_;
  std::vector<std::pair<rendezvous::FrameKind, std::string>> outgoing_;
  int running_ = 0;       // the generation whose ranks run here; 0: none
  int others_ended_ = 0;  // the last generation whose other nodes are done; 0: none
  bool leaving_ = false;
  RunEnd farewell_ = {};  // for the other nodes, if this one is leaving

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep::launcher
