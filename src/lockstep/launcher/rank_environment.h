// The environment variables by which a launcher tells a program its rank. They are torchrun's.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/topology.h"
#include "lockstep/process/environment.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::launcher {

struct RankPlace {
  Topology topology;
  int node_rank = 0;
  int nodes = 1;
  rendezvous::Endpoint master;
  std::string run_id;
  std::string token = {};  // the secret of the ranks
  int restarts = 0;
  int max_restarts = 0;
  int threads = 1;               // for OMP_NUM_THREADS, unless the user has set it
  std::string role = "default";  // torchrun's name for what the ranks of a group do
  // Numbers that must stay the same when the number of ranks changes, because results depend on
  // them. Variables of the user come first.
  std::optional<int> shards = {};
  std::optional<int> shard_threads = {};
  bool is_elastic = false;         // nodes may leave the run
  std::optional<int> memory = {};  // descriptor of the launcher's memory (process/memory_file.h)
};

// `base` together with the variables of this rank.
process::Environment rank_environment(const process::Environment& base, const RankPlace& place);

}  // namespace lockstep::launcher
