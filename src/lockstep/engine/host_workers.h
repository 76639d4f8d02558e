// Runs a function in several processes of this host. The engine and dist::launch() use it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/topology.h"
#include "lockstep/engine/engine.h"
#include "lockstep/process/host_group.h"

namespace lockstep {

// The number of workers on this host if the user does not say it: one per GPU, else one per core.
int default_workers();

struct HostWorkersOptions {
  int workers = 1;     // including this process
  int first_rank = 0;  // this process's rank in messages; those of the other workers follow it
  bool use_cuda =
      false;  // refuse to fork if CUDA has been started: it would not work in the workers
  std::chrono::milliseconds timeout = std::chrono::minutes(5);  // of every wait for other ranks
  // Receives each line that another worker prints, in a thread of this process. Empty: workers
  // share this process's output.
  std::function<void(int rank, const std::string& line)> on_line = {};
};

// Calls `work` in `workers` processes and returns when all are done. This process is rank 0 of the
// group; the others are forked. Throws what `work` threw in this process, after the other workers
// have been told, and WorkerError if another worker failed.
void run_host_workers(const HostWorkersOptions& options,
                      const std::function<void(process::HostGroup&)>& work);

// How run_host_workers() makes workers anew after a failure.
struct AttemptsOptions {
  std::function<bool(const Engine::AttemptFailure&)> try_again;  // as Engine::Job's
  std::function<bool()> is_done;  // this process's work is done: a later failure does not matter
  // From the second attempt on: if fewer workers can be made than wanted, this many are enough.
  int min_workers = 1;
};
// The same, but after a failure `work` is called again in this process and in new workers, as long
// as try_again() says so. `work` must look at the size of its group: it may become smaller. All
// workers are forked from a template process, which is forked at the beginning, so they all begin
// in the same state (docs/decisions/recovery.md).
void run_host_workers(const HostWorkersOptions& options,
                      const std::function<void(process::HostGroup&)>& work,
                      const AttemptsOptions& attempts);

// The place of a worker of the group, if all workers are on this host.
Topology topology_of(const process::HostGroup& host_group);

// Calls `action`. If it throws, calls report(message, kind) before the exception is passed on, so
// that no other rank waits for this one.
template <typename Report, typename Action>
void or_report(const Report& report, const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    report(message_of(error), process::failure_kind(error));
    throw;
  } catch (...) {
    report("threw something that is no exception", process::FailureKind::kError);
    throw;
  }
}

}  // namespace lockstep
