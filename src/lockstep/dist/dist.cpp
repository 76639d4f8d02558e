#include "lockstep/dist/dist.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/world.h"
#include "lockstep/dist/group.h"
#include "lockstep/engine/devices.h"
#include "lockstep/engine/host_workers.h"
#include "lockstep/engine/thread_scope.h"
#include "lockstep/process/affinity.h"
#include "lockstep/process/environment.h"
#include "lockstep/rendezvous/socket.h"

namespace lockstep::dist {
namespace {

// The topology and options that launch() gave to the worker in this process.
struct Launched {
  Topology topology;
  LaunchOptions options;
  process::HostGroup* host_group = nullptr;     // set if launch() forked the workers
  std::optional<process::LaunchedPlace> place;  // set if a launcher started this process
  bool cuda_was_started = false;  // when launch() forked: workers other than rank 0 cannot use it
};

struct Process {
  const Launched* launched = nullptr;  // set while launch() runs a worker
  std::unique_ptr<comm::World> world;  // the current group
  // Sums over it. Ends before the group does.
  std::unique_ptr<BackgroundSums> sums;
  std::uint64_t groups = 0;  // that this process has joined so far
  comm::Local alone;         // the group of a process that has none
};

// Global because the functions of dist.h act on "the" group of the process, as PyTorch's do.
Process& this_process() {
  static Process process;
  return process;
}

std::optional<process::LaunchedPlace> launcher_place() {
  return process::find_place(process::current_environment());
}

// Sets this process's place and its part of the cores while a worker runs.
class LaunchScope {
 public:
  explicit LaunchScope(const Launched& launched) {
    if (launched.topology.local_size > 1) threads_.emplace(threads_of(launched));
    this_process().launched = &launched;
  }
  ~LaunchScope() { this_process().launched = nullptr; }
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;

 private:
  static ThreadScopeOptions threads_of(const Launched& launched) {
    ThreadScopeOptions options{
        .threads = std::max(1, process::usable_cores() / launched.topology.local_size),
        .timeout = launched.options.timeout};
    if (process::HostGroup* const host_group = launched.host_group) {
      options.on_hang = [host_group](const std::string& reason) {
        host_group->fail(host_group->rank(), reason, process::FailureKind::kHang);
      };
    }
    return options;
  }

  std::optional<ThreadScope> threads_;
};

// Leaves the group and reports to the other ranks that this rank fails.
void leave_failed(std::string_view reason, process::FailureKind kind) noexcept {
  const auto world = std::move(this_process().world);
  const auto sums = std::move(this_process().sums);
  if (world != nullptr) world->communicator().abort(reason, kind);
}

using WorkerFunction = std::function<void(int, int)>;

// Runs the worker. If it throws, the other ranks are told before the exception is passed on.
void work(const WorkerFunction& worker, const Launched& launched) {
  const LaunchScope scope(launched);
  or_report(
      [](const std::string& reason, process::FailureKind kind) { leave_failed(reason, kind); },
      [&] {
        worker(launched.topology.rank, launched.topology.world_size);
        cleanup();
      });
}

void fork_workers(const WorkerFunction& worker, const LaunchOptions& options, int workers) {
  const bool cuda_was_started = cuda_is_started();
  run_host_workers({.workers = workers, .timeout = options.timeout},
                   [&](process::HostGroup& host_group) {
                     work(worker, {.topology = topology_of(host_group),
                                   .options = options,
                                   .host_group = &host_group,
                                   .cuda_was_started = cuda_was_started});
                   });
}

// Throws if the options differ from the place that `giver` gave this process.
void check_place(const ProcessGroupOptions& options, const Topology& given,
                 std::string_view giver) {
  if (options.rank.value_or(given.rank) == given.rank &&
      options.world_size.value_or(given.world_size) == given.world_size) {
    return;
  }
  throw ConfigError(
      "init_process_group: expected rank {} of {}, as {} says, got rank {} of {}; leave them out, "
      "or give the address and port of a rendezvous",
      given.rank, given.world_size, giver, options.rank.value_or(given.rank),
      options.world_size.value_or(given.world_size));
}

// The place of a process whose options must give it, because they name a port.
Topology own_place(const ProcessGroupOptions& options, const process::HostGroup* host_group) {
  if (!options.rank || !options.world_size) {
    throw ConfigError("init_process_group: expected a rank and a world_size with port {}, got {}",
                      *options.port,
                      options.rank         ? "a rank only"
                      : options.world_size ? "a world_size only"
                                           : "none");
  }
  if (*options.world_size < 1 || *options.rank < 0 || *options.rank >= *options.world_size) {
    throw ConfigError("init_process_group: expected a rank from 0 to world_size - 1, got {} of {}",
                      *options.rank, *options.world_size);
  }
  if (*options.port < 1 || *options.port > 65535) {
    throw ConfigError("init_process_group: port: expected 1 to 65535, got {}", *options.port);
  }
  Topology place{.rank = *options.rank, .world_size = *options.world_size};
  if (host_group != nullptr) {
    place.local_rank = host_group->rank();
    place.local_size = host_group->size();
  }
  return place;
}

std::unique_ptr<comm::World> connect(const ProcessGroupOptions& options) {
  const Launched* launched = this_process().launched;
  const LaunchOptions defaults = launched != nullptr ? launched->options : LaunchOptions();
  const comm::WorldOptions world{.backend = options.backend.value_or(defaults.backend),
                                 .reduction = options.reduction.value_or(defaults.reduction),
                                 .timeout = options.timeout.value_or(defaults.timeout),
                                 .join_timeout = options.join_timeout};
  comm::check_backend(world.backend);
  comm::check_reduction(world.reduction);
  if (world.backend == "nccl") comm::check_device(world.backend, get_device());
  process::HostGroup* host_group = launched != nullptr ? launched->host_group : nullptr;
  if (options.port) {
    const Topology place = own_place(options, host_group);
    if (place.world_size == 1) return comm::World::attach({}, world);
    return comm::World::meet({.topology = place,
                              .address = options.address,
                              .port = *options.port,
                              .token = options.token,
                              .token_file = options.token_file,
                              .allow_guessable_token = options.allow_guessable_token,
                              .interface = options.interface},
                             world, host_group);
  }
  if (host_group != nullptr) {
    check_place(options, launched->topology, "launch()");
    return comm::World::of_host_group(*host_group, world);
  }
  if (const auto place = launched != nullptr ? launched->place : launcher_place()) {
    check_place(options, place->topology, "the launcher");
    return comm::World::attach(*place, world);
  }
  if (options.rank.value_or(0) == 0 && options.world_size.value_or(1) == 1) {
    return comm::World::attach({}, world);
  }
  throw ConfigError(
      "init_process_group: rank {} of {}: expected a port for the rendezvous at rank 0, or a "
      "process that launch(), torchrun, mpirun or srun started",
      options.rank ? fmt::to_string(*options.rank) : "?",
      options.world_size ? fmt::to_string(*options.world_size) : "?");
}

// One rank's part of the data set. It is not a data::DistributedSampler, whose of_shard() would
// make a run divide the data set once more.
class RankSampler : public data::Sampler {
 public:
  RankSampler(std::int64_t dataset_size, const data::DistributedSamplerOptions& options, bool pad)
      : sampler_(dataset_size, options), size_(sampler_.size()) {
    if (pad) return;
    // The rank has the positions rank, rank + ranks, ... Those past the end are repeated samples.
    const std::int64_t rank = *options.rank;
    const std::int64_t ranks = *options.num_replicas;
    size_ = dataset_size > rank ? (dataset_size - rank + ranks - 1) / ranks : 0;
  }

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override {
    auto indices = sampler_.indices(epoch);
    indices.resize(static_cast<std::size_t>(size_));
    return indices;
  }

 private:
  data::DistributedSampler sampler_;
  std::int64_t size_;
};

}  // namespace

comm::Communicator& group() {
  Process& here = this_process();
  if (here.world != nullptr) return here.world->communicator();
  int size = 1;
  if (here.launched != nullptr) {
    size = here.launched->topology.world_size;
  } else if (const auto place = launcher_place()) {
    size = place->topology.world_size;
  }
  if (size > 1) {
    throw ConfigError(
        "there is no process group: this process is one of {}; call init_process_group() first",
        size);
  }
  return here.alone;
}

std::uint64_t group_number() {
  return is_initialized() ? this_process().groups : 0;
}

BackgroundSums& background_sums() {
  Process& here = this_process();
  if (here.sums == nullptr) here.sums = std::make_unique<BackgroundSums>(group());
  return *here.sums;
}

void launch(const WorkerFunction& worker, const LaunchOptions& options) {
  if (!worker) throw ConfigError("launch: expected a worker, got an empty function");
  if (this_process().launched != nullptr)
    throw ConfigError("launch: was called inside of a worker");
  if (is_initialized()) {
    throw ConfigError("launch: this process has a group already; call cleanup() first");
  }
  if (options.workers && *options.workers < 1) {
    throw ConfigError("launch: workers: expected 1 or more, got {}", *options.workers);
  }
  if (const auto place = launcher_place()) {
    work(worker, {.topology = place->topology, .options = options, .place = place});
    return;
  }
  const int workers = options.workers ? *options.workers : default_workers();
  if (workers == 1) {
    work(worker, {.options = options});
  } else {
    fork_workers(worker, options, workers);
  }
}

void init_process_group(const ProcessGroupOptions& options) {
  if (is_initialized()) {
    throw ConfigError("init_process_group: there is a group already; call cleanup() first");
  }
  Process& here = this_process();
  here.world = connect(options);
  ++here.groups;
}

void cleanup() {
  const auto world = std::move(this_process().world);
  const auto sums = std::move(this_process().sums);
  if (world != nullptr) world->communicator().barrier();
}

void abort(std::string_view reason) noexcept {
  leave_failed(reason, process::FailureKind::kError);
}

bool is_initialized() {
  return this_process().world != nullptr;
}

int get_rank() {
  return is_initialized() ? group().rank() : 0;
}

int get_world_size() {
  return is_initialized() ? group().size() : 1;
}

bool is_primary() {
  return get_rank() == 0;
}

torch::Device get_device() {
  const Process& here = this_process();
  if (here.launched != nullptr && here.launched->topology.local_rank > 0) {
    check_forks_before_cuda(here.launched->cuda_was_started);
  }
  int local_rank = 0;
  if (here.world != nullptr) {
    local_rank = here.world->communicator().topology().local_rank;
  } else if (here.launched != nullptr) {
    local_rank = here.launched->topology.local_rank;
  } else {
    local_rank = launched_local_rank();
  }
  return choose_device({.local_rank = local_rank, .gpus = gpu_count()});
}

std::shared_ptr<const data::Sampler> data_sampler(const data::DatasetPtr& dataset,
                                                  const DataSamplerOptions& options) {
  if (dataset == nullptr) {
    throw ConfigError("data_sampler: expected a data set, got a null pointer");
  }
  if (!options.distributed) return nullptr;
  const comm::Communicator& all = group();
  return std::make_shared<RankSampler>(dataset->size(),
                                       data::DistributedSamplerOptions{.num_replicas = all.size(),
                                                                       .rank = all.rank(),
                                                                       .shuffle = options.shuffle,
                                                                       .seed = options.seed},
                                       options.pad);
}

torch::Tensor reduce(torch::Tensor tensor, ReduceOp op, int root) {
  group().reduce(tensor, op, root);
  return tensor;
}

torch::Tensor all_reduce(torch::Tensor tensor, ReduceOp op) {
  group().all_reduce(tensor, op);
  return tensor;
}

torch::Tensor broadcast(torch::Tensor tensor, int root) {
  group().broadcast(tensor, root);
  return tensor;
}

std::vector<torch::Tensor> gather(const torch::Tensor& tensor) {
  return group().gather(tensor);
}

std::vector<torch::Tensor> all_gather(const torch::Tensor& tensor) {
  return group().all_gather(tensor);
}

void barrier() {
  group().barrier();
}

void sync_params(const std::vector<torch::Tensor>& tensors) {
  comm::Communicator& all = group();
  for (const auto& tensor : tensors) all.broadcast(tensor);
}

void sync_params(const Model& model) {
  comm::Communicator& all = group();
  for (const auto& [name, tensor] : model.weights()) all.broadcast(tensor);
}

void print_in_order(std::string_view text) {
  std::string all;
  for (const std::string& one : group().gather_bytes(text)) {
    if (one.empty()) continue;
    if (!all.empty()) all += '\n';
    all += one;
  }
  if (!all.empty()) Console::standard().line(all);
}

int find_free_port() {
  return rendezvous::local_port(rendezvous::listen_on({}));
}

}  // namespace lockstep::dist
