// The messages between the launchers of a run whose number of nodes may change.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/launcher/restarts.h"
#include "lockstep/rendezvous/frame.h"

namespace lockstep::launcher {

// The nodes that run ranks together, from one change or restart to the next.
struct Generation {
  int number = 0;                       // 1, 2, ...; 0: there was none yet
  std::vector<std::string> nodes = {};  // their ids by node rank; the first one coordinates
};

// The values that all generations of a run share. Every node knows them, so that any node can
// coordinate the next one.
struct RunState {
  int shards = 0;   // for the ranks; 0: not decided yet
  int threads = 0;  // of each rank
  std::vector<AttemptFailure> failures = {};
};

// A node that wants to take part.
struct NodeDescription {
  std::string id = {};    // random, of this launcher's process
  std::string host = {};  // for messages
  int ranks = 1;
  int cores = 1;
  Generation agreed = {};  // the last one that it was prepared for
  Generation begun = {};   // the last one that it was told to begin
  RunState state = {};
  // The coordinator of that generation was seen to end: its host closed the connection. False if it
  // only became silent, because then it may still work.
  bool saw_end = false;
};

// A node's part in a generation.
struct GenerationPart {
  Generation generation = {};
  RunState state = {};
  int node_rank = 0;
  int first_rank = 0;  // of the node
  int world_size = 1;
  int port = 0;             // of the ranks' rendezvous, at the coordinator's address
  std::string run_id = {};  // of the ranks; another one in each generation
  std::string why = {};     // why there is a new generation; "" for the first one
  // Why the generation before ended: a failure of a rank of any node, or a node that was lost
  // (rank -1). Nothing for the first one, and if a node came.
  std::optional<AttemptFailure> cause = {};
};

// How the ranks of a node ended.
struct GenerationOutcome {
  int generation = 0;
  bool well = false;                           // all ranks ended by themselves, without a failure
  std::optional<AttemptFailure> failure = {};  // if a rank of this node failed
};

struct StopOrder {
  int generation = 0;
  std::string why = {};
};

// The end of the run.
struct RunEnd {
  int code = 0;
  std::string text = {};
};

// The welcome of a coordinator.
struct CoordinatorStatus {
  int generation = 0;
  bool active = false;  // it has enough nodes: a generation is running or begins
};

void write_failure(rendezvous::FieldWriter& fields, const AttemptFailure& failure);
AttemptFailure read_failure(rendezvous::FieldReader& fields);

// The payload of a frame, and back. Reading throws CommError if the payload is too short.
std::string encode(const NodeDescription& node);
std::string encode(const GenerationPart& part);
std::string encode(const GenerationOutcome& outcome);
std::string encode(const StopOrder& order);
std::string encode(const RunEnd& end);
std::string encode(const CoordinatorStatus& status);
NodeDescription decode_node(std::string_view payload);
GenerationPart decode_part(std::string_view payload);
GenerationOutcome decode_outcome(std::string_view payload);
StopOrder decode_stop(std::string_view payload);
RunEnd decode_end(std::string_view payload);
CoordinatorStatus decode_status(std::string_view payload);

}  // namespace lockstep::launcher
