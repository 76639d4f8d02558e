// All ranks of a run, connected: who is on which host, and the communicator that suits that.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/rendezvous_session.h"
#include "lockstep/process/environment.h"
#include "lockstep/process/host_group.h"

namespace lockstep::comm {

struct WorldOptions {
  // auto: shared memory inside a host, gloo between hosts. shm: refused where there are several
  // hosts. gloo: that alone, also inside a host.
  std::string backend = "auto";
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // For ranks that have not come yet. They may be loading or downloading data before the run, and a
  // launcher ends the run if one of them dies, so this is longer. Default: 6 times the timeout.
  std::optional<std::chrono::milliseconds> join_timeout = {};

  WaitLimits limits() const {
    constexpr std::chrono::milliseconds kForever = std::chrono::hours(1000);
    return {.answer = timeout, .join = join_timeout.value_or(6 * std::min(timeout, kForever))};
  }
};

// Throws ConfigError where there is no such backend in this build.
void check_backend(const std::string& backend);

class World {
 public:
  virtual ~World() = default;

  Communicator& communicator() { return *communicator_; }

  // The ranks of one host, forked from one process. The group outlives the world.
  static std::unique_ptr<World> of_host_group(process::HostGroup& host_group,
                                              const WorldOptions& options);

  // Ranks that know where rank 0 is to be met. Where some of them were forked on this host,
  // `host_group` is theirs. Throws CommError with the address, and who did not come.
  static std::unique_ptr<World> meet(const RendezvousSettings& settings,
                                     const WorldOptions& options,
                                     process::HostGroup* host_group = nullptr);

  // Ranks that a launcher started.
  static std::unique_ptr<World> attach(const process::LaunchedPlace& place,
                                       const WorldOptions& options);

 protected:
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace lockstep::comm
