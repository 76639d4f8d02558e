#include "lockstep/engine/distributed.h"

#include <algorithm>
#include <mutex>
#include <set>

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/color.h"
#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/comm/local.h"
#include "lockstep/compute/memory.h"
#include "lockstep/engine/blas.h"
#include "lockstep/engine/devices.h"
#include "lockstep/engine/host_workers.h"
#include "lockstep/engine/sync_batch_norm.h"
#include "lockstep/engine/thread_scope.h"
#include "lockstep/log/console.h"
#include "lockstep/process/affinity.h"

namespace lockstep {
namespace {

// Shows the output of the other workers, line by line, above a progress bar. A warning that several
// workers give is shown once.
class WorkerOutput {
 public:
  WorkerOutput() : previous_(set_warning_handler({})) {
    set_warning_handler([this](const std::string& message) {
      note("lockstep: warning: " + message);
      if (previous_) {
        previous_(message);
      } else {
        Console::standard().interrupt([&] { print_warning(message); });
      }
    });
  }
  ~WorkerOutput() { set_warning_handler(previous_); }
  WorkerOutput(const WorkerOutput&) = delete;
  WorkerOutput& operator=(const WorkerOutput&) = delete;

  void line(int rank, const std::string& text) {
    constexpr std::string_view kWarning = "lockstep: warning:";
    if (!text.starts_with(kWarning)) return show(fmt::format("[rank {}] {}", rank, text));
    if (!note(text)) return;
    show(fmt::format("[rank {}] {}{}", rank, colored_on(stderr, kWarning, TextColor::kYellow),
                     text.substr(kWarning.size())));
  }

 private:
  bool note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return seen_.insert(text).second;
  }

  static void show(const std::string& text) {
    Console::standard().interrupt([&] { std::fprintf(stderr, "%s\n", text.c_str()); });
  }

  WarningHandler previous_;
  std::mutex mutex_;
  std::set<std::string> seen_;
};

// Calls `action`. Reports an exception to the other ranks and throws it again.
template <typename Action>
void or_abort(comm::Communicator& communicator, const Action& action) {
  or_report([&](const std::string& reason,
                process::FailureKind kind) { communicator.abort(reason, kind); },
            action);
}

void check_positive(const char* name, const std::optional<int>& value) {
  if (value && *value < 1) throw ConfigError("{}: expected 1 or more, got {}", name, *value);
}

}  // namespace

DistributedDataParallelEngine::DistributedDataParallelEngine(DistributedDataParallelOptions options)
    : options_(std::move(options)), place_(process::find_place(process::current_environment())) {
  resolve();
}

void DistributedDataParallelEngine::resolve() {
  check_positive("workers", options_.workers);
  check_positive("shards", options_.shards);
  check_positive("threads", options_.threads);
  check_positive("world_size", options_.world_size);
  comm::check_backend(options_.backend);
  comm::check_reduction(options_.reduction);
  constexpr int kMostWorkers = 4096;
  if (options_.workers.value_or(1) > kMostWorkers) {
    throw ConfigError("workers: expected at most {}, got {}", kMostWorkers, *options_.workers);
  }
  if (!options_.device || options_.device->is_cuda()) {
    const UsableGpus gpus = usable_gpus();
    if (options_.device) check_device(*options_.device, gpus);
    gpus_ = gpus.count;
  }
  const bool one_gpu =
      options_.device && options_.device->is_cuda() && options_.device->has_index();
  const int cores = process::usable_cores();
  int local_rank = 0;
  if (place_) {
    world_size_ = place_->topology.world_size;
    if (options_.world_size && *options_.world_size != world_size_) {
      throw ConfigError("world_size: {}, but the launcher started {} processes",
                        *options_.world_size, world_size_);
    }
    local_workers_ = place_->topology.local_size;
    local_rank = place_->topology.local_rank;
  } else {
    const int usual = one_gpu ? 1 : gpus_ > 0 ? gpus_ : cores;
    local_workers_ = options_.workers.value_or(
        options_.shards && !options_.world_size ? std::min(usual, *options_.shards) : usual);
    if (one_gpu && local_workers_ > 1) {
      throw ConfigError(
          "device: got '{}' for {} workers; expected 'cuda', which gives every worker a GPU of its "
          "own, or workers: 1",
          options_.device->str(), local_workers_);
    }
    if (gpus_ > 0 && local_workers_ > gpus_) {
      // Several stages or trials each have such an engine.
      warn_once(fmt::format("{} workers share {}, which is slower than one worker per GPU",
                            local_workers_, gpus_ == 1 ? "1 GPU" : fmt::format("{} GPUs", gpus_)));
    }
    world_size_ = options_.world_size.value_or(local_workers_);
    const bool alone = world_size_ == local_workers_;
    if (options_.first_rank < 0 || options_.first_rank + local_workers_ > world_size_) {
      throw ConfigError("first_rank: {} workers from rank {} on do not fit into a world_size of {}",
                        local_workers_, options_.first_rank, world_size_);
    }
    if (!alone && !options_.port) {
      throw ConfigError(
          "port: expected the one that rank 0 listens on at {}, got none; world_size {} is more "
          "than the {} workers of this host",
          options_.address, world_size_, local_workers_);
    }
  }
  if (options_.port && (*options_.port < 1 || *options_.port > 65535)) {
    throw ConfigError("port: expected 1 to 65535, got {}", *options_.port);
  }
  // A launcher under which the number of ranks may change fixes what results depend on.
  const process::Environment environment =
      place_ ? process::current_environment() : process::Environment();
  const auto fixed_shards = process::positive_variable(environment, process::kShardsVariable);
  if (options_.sync_bn && fixed_shards) {
    throw ConfigError(
        "sync_bn: needs one shard per worker all the time, but {} says that the number of workers "
        "may change (`lockstep launch --nnodes MIN:MAX`); expected a fixed --nnodes",
        process::kShardsVariable);
  }
  shards_ = options_.shards.value_or(fixed_shards.value_or(world_size_));
  if (shards_ < world_size_) {
    throw ConfigError("shards: expected at least one per worker, got {} for {} workers", shards_,
                      world_size_);
  }
  if (options_.sync_bn && shards_ != world_size_) {
    throw ConfigError(
        "sync_bn: needs one shard per worker, because all must compute at the same time; got {} "
        "shards for {} workers",
        shards_, world_size_);
  }
  // Cores are divided by the shards, not by the workers, because the number of threads changes the
  // last bits of results.
  const int local_shards = std::max(1, shards_ * local_workers_ / world_size_);
  threads_ =
      options_.threads.value_or(process::positive_variable(environment, process::kThreadsVariable)
                                    .value_or(std::max(1, cores / local_shards)));
  device_ = choose_device({.wanted = options_.device, .local_rank = local_rank, .gpus = gpus_});
  comm::check_device(options_.backend, device_);
}

comm::WorldOptions DistributedDataParallelEngine::world_options() const {
  return {.backend = options_.backend,
          .reduction = options_.reduction,
          .timeout = options_.timeout,
          .join_timeout = options_.join_timeout};
}

void DistributedDataParallelEngine::start() {
  if (device_.is_cpu()) warn_of_slow_blas();
}

void DistributedDataParallelEngine::run(const Job& job) {
  set_up_process();
  if (place_) {
    run_attached(job);
  } else {
    run_forked(job);
  }
}

void DistributedDataParallelEngine::work_as(const Topology& local, const Job& job,
                                            comm::Communicator& communicator) {
  const auto cores = process::available_cores();
  const bool all = local.local_size * threads_ == static_cast<int>(cores.size());
  const bool pin = options_.pin.value_or(all && local.local_size > 1);
  const process::PinnedScope pinned(pin ? process::cores_of(cores, {.local_rank = local.local_rank,
                                                                    .workers = local.local_size,
                                                                    .threads = threads_})
                                        : std::vector<int>());
  const ThreadScope threads(
      {.threads = threads_, .timeout = options_.timeout, .on_hang = [&](const std::string& reason) {
         communicator.abort(reason, process::FailureKind::kHang);
       }});
  const compute::FlushDenormals flush;
  use_device(device_);
  if (communicator.is_primary()) start();
  const SyncBatchNormScope batch_norm(options_.sync_bn ? &communicator : nullptr);
  or_abort(communicator, [&] { job.work(communicator); });
}

void DistributedDataParallelEngine::run_attached(const Job& job) {
  const auto world = comm::World::attach(*place_, world_options());
  comm::Communicator& communicator = world->communicator();
  or_abort(communicator, [&] {
    const comm::AloneScope alone(communicator);  // it may be a download
    if (communicator.is_primary()) job.prepare();
    communicator.barrier();
    if (!communicator.is_primary()) job.prepare();
    communicator.barrier();
  });
  Topology local = communicator.topology();
  if (communicator.size() == 1) local = place_->topology;
  work_as(local, job, communicator);
  communicator.barrier();
}

void DistributedDataParallelEngine::run_forked(const Job& job) {
  job.prepare();
  if (world_size_ == 1) return run_alone(job);
  const bool on_one_host = world_size_ == local_workers_;
  bool done = false;
  // What every worker does, forked or not.
  const auto work = [&](process::HostGroup& host_group) {
    // Warnings go through the pipe to the caller, which shows them with the rank.
    if (host_group.rank() != 0) set_warning_handler({});
    Topology local = topology_of(host_group);
    local.rank += options_.first_rank;
    if (!on_one_host) local.world_size = world_size_;
    device_ =
        choose_device({.wanted = options_.device, .local_rank = host_group.rank(), .gpus = gpus_});
    std::unique_ptr<comm::World> world;
    if (on_one_host) {
      world = comm::World::of_host_group(host_group, world_options());
    } else {
      world = comm::World::meet({.topology = local,
                                 .address = options_.address,
                                 .port = *options_.port,
                                 .token = options_.token,
                                 .token_file = options_.token_file,
                                 .allow_guessable_token = options_.allow_guessable_token,
                                 .interface = options_.interface},
                                world_options(), &host_group);
    }
    work_as(local, job, world->communicator());
    done = true;
    world->communicator().barrier();
  };
  WorkerOutput output;
  const HostWorkersOptions workers{
      .workers = local_workers_,
      .first_rank = options_.first_rank,
      .use_cuda = device_.is_cuda(),
      .timeout = options_.timeout,
      .on_line = [&](int rank, const std::string& line) { output.line(rank, line); }};
  if (!job.try_again) return run_host_workers(workers, work);
  if (!on_one_host) {
    throw ConfigError(
        "max_restarts: the workers of this run are on several hosts, and no process watches over "
        "all "
        "of them; start it with `lockstep launch --max-restarts N` instead");
  }
  if (job.min_workers > local_workers_) {
    throw ConfigError("min_workers: expected at most the number of workers, which is {}, got {}",
                      local_workers_, job.min_workers);
  }
  // With synchronised batch norm every shard needs a worker.
  const int min_workers = options_.sync_bn ? local_workers_ : job.min_workers;
  run_host_workers(
      workers, work,
      {.try_again = job.try_again, .is_done = [&] { return done; }, .min_workers = min_workers});
}

// There is no worker to lose, but the work may throw.
void DistributedDataParallelEngine::run_alone(const Job& job) {
  while (true) {
    AttemptFailure failure;
    try {
      comm::Local alone;
      return work_as({}, job, alone);
    } catch (...) {
      failure.error = std::current_exception();
    }
    if (!job.try_again || !job.try_again(failure)) std::rethrow_exception(failure.error);
  }
}

}  // namespace lockstep
