// Decides which nodes of a run work together and when they begin anew: the coordinator's rules,
// without any socket.
//
//   gather ──► prepare ──► run ──► stop ──► gather ...
//     │           │ (all nodes have agreed)   │
//     ▼           ▼                           ▼
//   over        gather (a node was lost)     over
//
// There are never two coordinators with running ranks. A generation begins only when all its nodes
// have agreed to it, and a coordinator needs enough nodes of the generation before: the coordinator
// of that generation at least half of them, another one more than half. So of two parts of a
// divided network at most one goes on. If the run has one endpoint, no other node can become the
// coordinator, and it needs no half. With several endpoints the first generation needs more than
// half of all possible nodes, because a launcher that was started again does not know that the run
// goes on elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/launcher/node_messages.h"

namespace lockstep::launcher {

// Where the ranks of a generation meet.
struct RanksMeeting {
  int port = 0;
  std::string run_id = {};
};

struct MembershipOptions {
  std::string own = {};  // the id of the coordinator's own node
  int least = 1;         // nodes
  int most = 1;
  bool has_successors = false;  // another node may become the coordinator: several endpoints
  // It may begin the first generation. Only the coordinator at the first endpoint may.
  bool may_found = true;
  int max_restarts = 0;
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // to wait for enough nodes
  // Before the first generation: how long to wait for one more node, if there are enough.
  std::chrono::milliseconds last_call = std::chrono::seconds(3);
  // After the loss of a coordinator: how long the new one waits for the other nodes, if it has
  // enough.
  std::chrono::milliseconds regroup = std::chrono::seconds(2);
  // How long ranks may live after they were told to end. A new coordinator that did not see the old
  // one end waits for this and a second more, because ranks on the other side of a cut may live.
  std::chrono::milliseconds grace{0};
  // How long a node that comes during the run waits for the next point, so that no batch is
  // repeated.
  std::chrono::milliseconds point_wait = std::chrono::seconds(5);
  std::function<void(const std::string& node, rendezvous::FrameKind kind,
                     const std::string& payload)>
      send;
  // Called once per generation. If it throws, it is called again until it does not, or until the
  // time to wait for nodes is over.
  std::function<RanksMeeting()> meeting;
  std::function<std::uint64_t()> points = [] { return 0; };  // points that the ranks have stored
};

// Not thread-safe. Time is passed in by the caller.
class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Membership(MembershipOptions options, Time now);

  void joined(const NodeDescription& node, Time now);
  // The node's connection ended, or it was silent for too long.
  void lost(const std::string& node, const std::string& how, Time now);
  void agreed(const std::string& node, int generation);
  void ended(const std::string& node, const GenerationOutcome& outcome, Time now);
  // Must be called every 100 ms or so.
  void tick(Time now);

  // This coordinator ends, and no other one can follow. Nothing happens if the run is over.
  void end_run(const RunEnd& end);

  CoordinatorStatus status() const;
  bool is_over() const { return phase_ == RunPhase::kOver; }

 private:
  enum class RunPhase { kGather, kPrepare, kRun, kStop, kOver };

  std::vector<std::string> choose() const;
  bool has_enough(const std::vector<std::string>& nodes) const;
  bool may_begin(const std::vector<std::string>& nodes, Time now);
  bool has_quorum(const Generation& generation) const;
  bool all_here(const Generation& generation) const;
  const Generation& last_generation() const;
  bool other_side_may_live() const;
  bool is_in_generation(const std::string& node) const;
  int ranks_of(const std::vector<std::string>& nodes) const;
  bool prepare(const std::vector<std::string>& nodes, Time now);
  void begin();
  void stop(const std::string& why, Time now);
  std::vector<std::string> running_nodes() const;
  void tell_last_node();
  void settle(Time now);
  void gather(const std::string& why, std::chrono::milliseconds wait, Time now);
  void end(const RunEnd& end);
  void send_all(const std::vector<std::string>& nodes, rendezvous::FrameKind kind,
                const std::string& payload);
  std::string name_of_node(const std::string& node) const;
  std::string too_few(std::size_t count) const;

  MembershipOptions options_;
  RunPhase phase_ = RunPhase::kGather;
  RunEnd end_ = {};  // at RunPhase::kOver
  std::map<std::string, NodeDescription> present_;
  std::vector<std::string> arrivals_;  // present nodes in the order of their arrival
  Generation begun_;                   // the last generation that is known to have begun
  Generation agreed_;                  // the last one that a node is known to have agreed to
  Generation current_;                 // that is prepared or runs here
  RunState state_;
  bool coordinator_seen_to_end_ = false;  // that of begun_
  std::set<std::string> agreeing_;        // nodes that have agreed to current_
  std::map<std::string, GenerationOutcome> outcomes_;
  // Nodes of current_ that were lost since it began, and how. They may be present again, but their
  // ranks of that generation are gone.
  std::map<std::string, std::string> lost_;
  std::string why_;                           // why there will be a new generation
  std::optional<AttemptFailure> cause_ = {};  // see GenerationPart
  Time last_arrival_;
  Time gather_until_;
  Time begin_after_;     // the wait before a restart
  Time stopping_since_;  // at RunPhase::kStop
  std::optional<Time> enough_since_ = {};
  std::optional<Time> gathering_since_ = {};  // since nodes are here
  std::optional<Time> change_wanted_ = {};    // a node that came waits since then
  std::uint64_t points_then_ = 0;
  std::string cannot_meet_ = {};  // why the last call of `meeting` failed; "" if it did not
};

}  // namespace lockstep::launcher
