#include "lockstep/comm/world.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <map>

#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/comm/c10d.h"
#include "lockstep/comm/hierarchical.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/nccl.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/shared.h"
#include "lockstep/comm/two_planes.h"

namespace lockstep::comm {
namespace {

using rendezvous::Rendezvous;

// Equal for processes that can share memory: they have the same boot of the kernel, the same
// namespaces of processes and network, and the same user.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space {};
  ::stat("/proc/self/ns/pid", &space);
  struct stat net {};
  ::stat("/proc/self/ns/net", &net);
  return fmt::format("{} {} {} {}", boot, static_cast<unsigned long>(space.st_ino),
                     static_cast<unsigned long>(net.st_ino), ::getuid());
}

// The first rank of a host sends this instead of a handle if it cannot make shared memory.
constexpr const char* kNoMemory = "none";

// The reason that other ranks see if a rank ended by an exception without calling abort().
constexpr const char* kEndedByException = "ended by an exception";

// How long rank 0 waits for the other ranks to leave at the end.
constexpr std::chrono::seconds kLeaveTimeout(5);
// How long rank 0 waits for them if it fails at the start.
constexpr std::chrono::seconds kFailedStartTimeout(1);

constexpr const char* kNccl = "nccl";

// Whether ranks of one host share memory.
bool shares(const std::string& backend) {
  return backend == "auto" || backend == "shm" || backend == kNccl;
}

// Adds a plane for tensors on GPUs.
std::unique_ptr<Communicator> with_data_plane(std::unique_ptr<Communicator> control,
                                              const WorldOptions& options) {
  const SumOrder order = sum_order(options.reduction);
  const bool wanted = options.backend == "auto" || options.backend == kNccl;
  const PlaneFactory* const planes = wanted ? nccl_planes() : nullptr;
  if (control->size() == 1) return control;
  if (planes != nullptr) {
    return std::make_unique<TwoPlanes>(TwoPlanesOptions{.factory = *planes,
                                                        .order = order,
                                                        .required = options.backend == kNccl,
                                                        .timeout = options.timeout},
                                       std::move(control));
  }
  if (order == SumOrder::kFast && control->is_primary()) {
    warn("reduction: fast has no effect without nccl: sums keep their order");
  }
  return control;
}

class ConnectedWorld final : public World {
 public:
  ConnectedWorld(std::unique_ptr<Communicator> communicator, const WorldOptions& options) {
    communicator_ = with_data_plane(std::move(communicator), options);
  }

  ConnectedWorld(RendezvousSession session, const WorldOptions& options,
                 process::HostGroup* host_group)
      : session_(std::move(session)),
        topology_(session_.topology),
        options_(options),
        forked_(host_group) {
    try {
      connect();
      communicator_ = with_data_plane(std::move(communicator_), options_);
    } catch (const std::exception& error) {
      session_.rendezvous->fail(error.what());
      // An error here usually occurs on every rank. The server stays for a moment, so that each
      // rank can find out by itself.
      if (session_.server != nullptr) {
        session_.rendezvous->leave();
        session_.server->wait_until_empty(kFailedStartTimeout);
      }
      throw;
    }
  }

  // Rank 0 leaves last: its server runs until all ranks are done. After a failure it does not wait,
  // so that the other ranks do not wait for it.
  ~ConnectedWorld() override {
    // Compared with the count at construction, because a world may be made and used while an
    // exception is handled.
    const bool failing = std::uncaught_exceptions() > exceptions_;
    communicator_.reset();
    if (process::HostGroup* host_group = group_of_host()) host_group->set_wait_listener({});
    if (host_group_ != nullptr) leave_host_group(failing);
    if (session_.rendezvous == nullptr) return;
    if (failing) session_.rendezvous->fail(kEndedByException);
    const bool in_order = !session_.rendezvous->failure();
    session_.rendezvous->leave();
    if (session_.server != nullptr && in_order) session_.server->wait_until_empty(kLeaveTimeout);
  }

 private:
  void leave_host_group(bool failing) {
    if (failing) host_group_->fail(host_group_->rank(), kEndedByException);
    host_group_->set_state(process::MemberState::kLeft);
  }

  void connect() {
    if (topology_.world_size == 1) {
      communicator_ = std::make_unique<Local>();
      return;
    }
    group_by_host();
    if (!shares(options_.backend)) {
      communicator_ = make_c10d(topology_, "world", all_ranks());
      return;
    }
    if (!agree(forked_ != nullptr || make_host_group())) {
      refuse_shm("not every rank can open the memory of the others on its host");
      communicator_ = make_c10d(topology_, "world", all_ranks());
      return;
    }
    if (hosts_.size() == 1) {
      communicator_ = make_inside();
      return;
    }
    refuse_shm(fmt::format("the ranks are on {} hosts", hosts_.size()));
    if (static_cast<int>(hosts_.size()) == topology_.world_size) {
      communicator_ = make_c10d(topology_, "world", all_ranks());
      return;
    }
    communicator_ = make_hierarchical();
  }

  // The group of this host's ranks. Null if this rank is the only one on its host.
  process::HostGroup* group_of_host() const {
    return forked_ != nullptr ? forked_ : host_group_.get();
  }

  std::unique_ptr<Communicator> make_inside() const {
    if (process::HostGroup* host_group = group_of_host())
      return std::make_unique<Shared>(*host_group);
    return std::make_unique<Local>();
  }

  std::vector<int> all_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < topology_.world_size; ++rank) ranks.push_back(rank);
    return ranks;
  }

  // Finds out which rank is on which host. The ranks of a host are in ascending order.
  void group_by_host() {
    Rendezvous& rendezvous = *session_.rendezvous;
    std::string own = host_identity();
    // Ranks that were forked together share memory with each other, and with no other process.
    if (forked_ != nullptr) own += fmt::format(" forked by {}", forked_->pid(0));
    rendezvous.set(fmt::format("host/{}", topology_.rank), own);
    std::map<std::string, std::size_t> known;
    for (int rank = 0; rank < topology_.world_size; ++rank) {
      const std::string host = rendezvous.get(fmt::format("host/{}", rank), options_.timeout);
      const auto [place, fresh] = known.try_emplace(host, hosts_.size());
      if (fresh) hosts_.emplace_back();
      hosts_[place->second].push_back(rank);
      if (rank == topology_.rank) host_ = place->second;
    }
    const auto& here = hosts_[host_];
    topology_.local_size = static_cast<int>(here.size());
    topology_.local_rank = static_cast<int>(std::ranges::find(here, topology_.rank) - here.begin());
  }

  // Makes shared memory for processes that were started separately. False if that is not possible.
  bool make_host_group() {
    const auto& here = hosts_[host_];
    if (here.size() == 1) return true;
    Rendezvous& rendezvous = *session_.rendezvous;
    const std::string key = fmt::format("host_group/{}", here.front());
    std::shared_ptr<process::HostGroupMemory> memory;
    try {
      if (topology_.local_rank == 0) {
        memory = std::make_shared<process::HostGroupMemory>(static_cast<int>(here.size()));
        rendezvous.set(key, memory->memory.handle());
      } else {
        const std::string handle = rendezvous.get(key, options_.timeout);
        if (handle == kNoMemory) return false;
        memory = std::make_shared<process::HostGroupMemory>(process::SharedMemory::open(handle));
      }
    } catch (const CommError&) {
      if (rendezvous.failure()) throw;
      // The ranks that wait for the handle get this answer at once.
      if (topology_.local_rank == 0) rendezvous.set(key, kNoMemory);
      return false;
    }
    host_group_ = std::make_unique<process::HostGroup>(
        memory, process::HostGroupOptions{
                    .rank = topology_.local_rank, .timeout = options_.timeout, .names = here});
    host_group_->join();
    return true;
  }

  // Whether all ranks say yes.
  bool agree(bool yes) {
    Rendezvous& rendezvous = *session_.rendezvous;
    rendezvous.set(fmt::format("shares/{}", topology_.rank), yes ? "yes" : "no");
    bool all = true;
    for (int rank = 0; rank < topology_.world_size; ++rank) {
      all &= rendezvous.get(fmt::format("shares/{}", rank), options_.timeout) == "yes";
    }
    return all;
  }

  void refuse_shm(const std::string& why) const {
    if (options_.backend != "shm") return;
    throw ConfigError("backend: shm is for the ranks of one host, but {}; expected auto or gloo",
                      why);
  }

  std::unique_ptr<Communicator> make_c10d(const Topology& topology, const std::string& group,
                                          std::vector<int> world_ranks,
                                          process::HostGroup* inside = nullptr) const {
    return std::make_unique<C10d>(
        C10dOptions{.topology = topology,
                    .backend = shares(options_.backend) ? "gloo" : options_.backend,
                    .address = session_.own_address,
                    .group = group,
                    .timeout = options_.timeout,
                    .host_group = forked_,
                    .inside = inside},
        session_.rendezvous, std::move(world_ranks));
  }

  std::unique_ptr<Communicator> make_hierarchical() const {
    std::unique_ptr<Communicator> leaders;
    if (topology_.local_rank == 0) {
      Topology among{.rank = static_cast<int>(host_),
                     .world_size = static_cast<int>(hosts_.size())};
      std::vector<int> world_ranks;
      for (const auto& host : hosts_) world_ranks.push_back(host.front());
      leaders = make_c10d(among, "leaders", std::move(world_ranks), group_of_host());
    }
    // Other hosts that wait for this host can see which of its ranks is late.
    if (process::HostGroup* host_group = group_of_host())
      host_group->set_wait_listener(
          [rendezvous = session_.rendezvous](const std::vector<int>& late) {
            rendezvous->set_waits_for(fmt::format("{}", fmt::join(late, " ")));
          });
    return std::make_unique<Hierarchical>(
        HierarchicalOptions{.topology = topology_, .hosts = hosts_, .name = "shm+gloo"},
        make_inside(), std::move(leaders));
  }

  const int exceptions_ = std::uncaught_exceptions();
  RendezvousSession session_;
  Topology topology_;
  WorldOptions options_;
  std::vector<std::vector<int>> hosts_;
  std::size_t host_ = 0;
  process::HostGroup* forked_ = nullptr;  // of this host's ranks, if one process forked them
  std::unique_ptr<process::HostGroup> host_group_;  // of ranks that were started separately
};

}  // namespace

void check_backend(const std::string& backend) {
  if (backend == "auto" || backend == "shm") return;
  const auto there = available_backends();
  if (std::ranges::find(there, backend) != there.end()) return;
  throw ConfigError(
      "backend: expected auto, shm or {}, got '{}'{}", fmt::join(there, ", "), backend,
      backend == kNccl
          ? "; this build of Lockstep has no such backend: use auto, or build it with a LibTorch "
            "that has CUDA and NCCL (docs/guide/installing.md)"
      : backend == "mpi"
          ? "; this version of Lockstep has no such backend: use auto, which is shared "
            "memory inside a host and gloo between hosts"
          : "");
}

void check_device(const std::string& backend, const torch::Device& device) {
  if (backend != kNccl || device.is_cuda()) return;
  throw ConfigError(
      "backend: nccl sends tensors that are on GPUs, and this run is on '{}'; use auto, or a "
      "machine with GPUs",
      device.str());
}

void check_reduction(const std::string& reduction) {
  sum_order(reduction);
}

std::unique_ptr<World> World::of_host_group(process::HostGroup& host_group,
                                            const WorldOptions& options) {
  check_backend(options.backend);
  check_reduction(options.reduction);
  auto shared = std::make_unique<Shared>(host_group);
  if (shares(options.backend)) {
    return std::make_unique<ConnectedWorld>(std::move(shared), options);
  }
  return std::make_unique<ConnectedWorld>(meet_through(*shared, options.limits()), options,
                                          &host_group);
}

std::unique_ptr<World> World::meet(const RendezvousSettings& settings, const WorldOptions& options,
                                   process::HostGroup* host_group) {
  check_backend(options.backend);
  check_reduction(options.reduction);
  return std::make_unique<ConnectedWorld>(meet_at(settings, options.limits()), options, host_group);
}

std::unique_ptr<World> World::attach(const process::LaunchedPlace& place,
                                     const WorldOptions& options) {
  check_backend(options.backend);
  check_reduction(options.reduction);
  if (place.topology.world_size == 1) {
    return std::make_unique<ConnectedWorld>(std::make_unique<Local>(), options);
  }
  return std::make_unique<ConnectedWorld>(meet_as_launched(place, options.limits()), options,
                                          nullptr);
}

}  // namespace lockstep::comm
