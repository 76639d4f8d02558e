// All ranks of a run, connected. World finds out which rank is on which host and chooses the
// communicator for it.
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
  // auto: shared memory inside a host, gloo between hosts, and nccl for tensors on GPUs if this
  // build has it. shm: shared memory, refused if there are several hosts. gloo: gloo only, also
  // inside a host. nccl: as auto, but an error if nccl cannot be used for tensors on GPUs.
  std::string backend = "auto";
  // In which order nccl adds: ordered or fast (two_planes.h). Other backends always keep the order.
  std::string reduction = "ordered";
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  // The time limit for ranks that have not joined yet. They may be loading or downloading data
  // before the run, and a launcher ends the run if one of them dies, so this limit is longer.
  // Default: 6 times the timeout.
  std::optional<std::chrono::milliseconds> join_timeout = {};

  WaitLimits limits() const {
    constexpr std::chrono::milliseconds kForever = std::chrono::hours(1000);
    return {.answer = timeout, .join = join_timeout.value_or(6 * std::min(timeout, kForever))};
  }
};

// Throws ConfigError if this build has no such backend.
void check_backend(const std::string& backend);

// Throws ConfigError if the backend is only for GPUs and the tensors of this rank are on `device`.
void check_device(const std::string& backend, const torch::Device& device);

// Throws ConfigError if it is neither ordered nor fast.
void check_reduction(const std::string& reduction);

class World {
 public:
  virtual ~World() = default;

  Communicator& communicator() { return *communicator_; }

  // For the ranks of one host, forked from one process. The group must outlive the world.
  static std::unique_ptr<World> of_host_group(process::HostGroup& host_group,
                                              const WorldOptions& options);

  // For ranks that know the address of rank 0. If one process forked the ranks of this host,
  // `host_group` is their group. Throws CommError, which names the address and the missing ranks.
  static std::unique_ptr<World> meet(const RendezvousSettings& settings,
                                     const WorldOptions& options,
                                     process::HostGroup* host_group = nullptr);

  // For ranks that a launcher started.
  static std::unique_ptr<World> attach(const process::LaunchedPlace& place,
                                       const WorldOptions& options);

 protected:
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace lockstep::comm
