#include "lockstep/launcher/rank_environment.h"

#include "lockstep/process/memory_file.h"
#include "lockstep/rendezvous/token.h"

namespace lockstep::launcher {

process::Environment rank_environment(const process::Environment& base, const RankPlace& place) {
  process::Environment environment = base;
  const auto set = [&](const char* name, const std::string& value) { environment[name] = value; };
  const Topology& topology = place.topology;
  set("RANK", std::to_string(topology.rank));
  set("WORLD_SIZE", std::to_string(topology.world_size));
  set("LOCAL_RANK", std::to_string(topology.local_rank));
  set("LOCAL_WORLD_SIZE", std::to_string(topology.local_size));
  set("GROUP_RANK", std::to_string(place.node_rank));
  set("GROUP_WORLD_SIZE", std::to_string(place.nodes));
  set("ROLE_NAME", place.role);
  set("ROLE_RANK", std::to_string(topology.rank));
  set("ROLE_WORLD_SIZE", std::to_string(topology.world_size));
  set("MASTER_ADDR", place.master.address);
  set("MASTER_PORT", std::to_string(place.master.port));
  set("TORCHELASTIC_RUN_ID", place.run_id);
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(place.restarts));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(place.max_restarts));
  // The ranks need only their own secret, so the launchers' secret is not passed on.
  set(rendezvous::kTokenVariable, place.token);
  environment.erase(rendezvous::kTokenFileVariable);
  // Without memory of its own, this launcher may still have inherited another launcher's variable.
  environment.erase(process::MemoryFile::kVariable);
  if (place.memory) set(process::MemoryFile::kVariable, std::to_string(*place.memory));
  environment.erase(process::kElasticVariable);
  if (place.is_elastic) set(process::kElasticVariable, "1");
  // Rank 0 itself listens at the master address; its launcher does not.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  // The output of a Python rank is shown at once, and is not lost if the rank is killed.
  environment.try_emplace("PYTHONUNBUFFERED", "1");
  // PyTorch 2.4 and later use libuv by default, and fail if they were built without it, as in
  // Debian. Every build has the store without libuv. Their speed differs only with thousands of
  // ranks.
  environment.try_emplace("USE_LIBUV", "0");
  environment.try_emplace("OMP_NUM_THREADS", std::to_string(place.threads));
  if (place.shards)
    environment.try_emplace(process::kShardsVariable, std::to_string(*place.shards));
  if (place.shard_threads) {
    environment.try_emplace(process::kThreadsVariable, std::to_string(*place.shard_threads));
  }
  return environment;
}

}  // namespace lockstep::launcher
