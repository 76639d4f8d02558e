#include "lockstep/launcher/rank_environment.h"

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
  // The ranks' own secret is enough for them: the launchers' is not handed on.
  set(rendezvous::kTokenVariable, place.token);
  environment.erase(rendezvous::kTokenFileVariable);
  // Rank 0 itself listens at the master's address, not its launcher.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  // What a Python rank prints is seen when it prints it, also where it is killed.
  environment.try_emplace("PYTHONUNBUFFERED", "1");
  // PyTorch from 2.4 on asks for libuv, and fails where it was built without, as Debian's is. The
  // store without libuv is in every build; the two differ in speed with thousands of ranks only.
  environment.try_emplace("USE_LIBUV", "0");
  environment.try_emplace("OMP_NUM_THREADS", std::to_string(place.threads));
  return environment;
}

}  // namespace lockstep::launcher
