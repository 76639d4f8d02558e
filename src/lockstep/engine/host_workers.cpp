#include "lockstep/engine/host_workers.h"

#include <memory>
#include <optional>

#include "lockstep/base/warn.h"
#include "lockstep/compute/autograd_probe.h"
#include "lockstep/engine/devices.h"
#include "lockstep/process/affinity.h"
#include "lockstep/process/forked_workers.h"
#include "lockstep/process/worker_template.h"

namespace lockstep {

int default_workers() {
  const int gpus = gpu_count();
  return gpus > 0 ? gpus : process::usable_cores();
}

namespace {

process::ForkedWorkersOptions forking_options(const HostWorkersOptions& options) {
  return {.size = options.workers,
          .first_rank = options.first_rank,
          .timeout = options.timeout,
          .probe = compute::autograd_works,
          .on_line = options.on_line};
}

// Makes the workers. If not all of them can be made, those that can be are enough from the second
// attempt on.
std::unique_ptr<process::ForkedWorkers> fork_workers(
    process::ForkedWorkersOptions& forking, const std::function<void(process::HostGroup&)>& work,
    int min_workers) {
  while (true) {
    try {
      return std::make_unique<process::ForkedWorkers>(forking, work);
    } catch (const process::ForkError& error) {
      if (error.possible() < min_workers || error.possible() >= forking.size) throw;
      warn(fmt::format("{}; the run goes on with {} of {} workers", error.what(), error.possible(),
                       forking.size));
      forking.size = error.possible();
    }
  }
}

// Does the work as rank 0 and waits for the other workers.
void run_as_rank_zero(process::ForkedWorkers& forked,
                      const std::function<void(process::HostGroup&)>& work) {
  process::HostGroup& host_group = forked.host_group();
  or_report([&](const std::string& reason,
                process::FailureKind kind) { host_group.fail(0, reason, kind); },
            [&] { work(host_group); });
  forked.join();
}

// Called in a catch block.
void warn_of_late_failure() {
  try {
    throw;
  } catch (const std::exception& error) {
    warn(fmt::format("a worker failed when the work was done: {}", message_of(error)));
  } catch (...) {
    warn("a worker failed when the work was done");
  }
}

// Why the attempt failed. Nothing if the work is done.
std::optional<Engine::AttemptFailure> run_attempt(
    process::ForkedWorkersOptions& forking, const std::function<void(process::HostGroup&)>& work,
    const AttemptsOptions& attempts, int min_workers) {
  std::unique_ptr<process::ForkedWorkers> forked;
  try {
    forked = fork_workers(forking, work, min_workers);
    run_as_rank_zero(*forked, work);
    return std::nullopt;
  } catch (...) {
    if (attempts.is_done()) {
      warn_of_late_failure();
      return std::nullopt;
    }
    Engine::AttemptFailure failure{.error = std::current_exception()};
    if (forked != nullptr) {
      failure.rank = forked->host_group().named_failure();
      forked->end_now();
    }
    return failure;
  }
}

}  // namespace

void run_host_workers(const HostWorkersOptions& options,
                      const std::function<void(process::HostGroup&)>& work) {
  if (options.use_cuda && options.workers > 1) check_forks_before_cuda(cuda_is_started());
  process::ForkedWorkers forked(forking_options(options), work);
  run_as_rank_zero(forked, work);
}

void run_host_workers(const HostWorkersOptions& options,
                      const std::function<void(process::HostGroup&)>& work,
                      const AttemptsOptions& attempts) {
  if (options.use_cuda && options.workers > 1) check_forks_before_cuda(cuda_is_started());
  process::ForkedWorkersOptions forking = forking_options(options);
  process::WorkerTemplate worker_template({.probe = compute::autograd_works}, work);
  forking.worker_template = &worker_template;
  forking.recovers = true;
  for (bool is_first = true;; is_first = false) {
    const int min_workers = is_first ? options.workers : attempts.min_workers;
    // CUDA runs in this process since the first attempt, but not in the template.
    if (options.use_cuda && options.workers > 1 && !worker_template.is_alive()) {
      check_forks_before_cuda(cuda_is_started());
    }
    const auto failure = run_attempt(forking, work, attempts, min_workers);
    if (!failure) return;
    if (!attempts.try_again(*failure)) std::rethrow_exception(failure->error);
    forking.size = options.workers;
  }
}

Topology topology_of(const process::HostGroup& host_group) {
  return {.rank = host_group.rank(),
          .world_size = host_group.size(),
          .local_rank = host_group.rank(),
          .local_size = host_group.size()};
}

}  // namespace lockstep
