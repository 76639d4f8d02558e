// Where a launcher has started this program, which place is this process's: torchrun, the mpirun of
// Open MPI, MPICH or Intel MPI, and Slurm's srun say it in environment variables.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "lockstep/base/topology.h"

namespace lockstep::process {

// kHydra is the mpirun (mpiexec) of MPICH and Intel MPI.
enum class Launcher { kTorchrun, kOpenMpi, kHydra, kSlurm };

struct LaunchedPlace {
  // Whose variables were believed. Whoever sets RANK and its kin by hand counts as torchrun.
  Launcher launcher = Launcher::kTorchrun;
  // local_size is a hint; who must be sure groups the processes by host.
  Topology topology = {};
  // False: nobody counted this host's processes; local_size is local_rank + 1, the fewest possible.
  bool local_size_known = false;
  // MASTER_ADDR and MASTER_PORT: where to meet. torchrun always sets both.
  std::optional<std::string> master_address = {};
  std::optional<int> master_port = {};
  // torchrun's agent has a c10d TCPStore listening at the master address already.
  bool agent_store = false;
  // Tells runs apart, the same in all processes of one: torchrun's run id and its restart count,
  // Open MPI's job, hydra's daemon, Slurm's job and step; "" where there is none. torchrun without
  // --rdzv_id calls every run "none", so that this is unique only together with the master address.
  std::string run_id = {};
};

using Environment = std::map<std::string, std::string>;

// All variables of this process. Nobody may change them meanwhile.
Environment current_environment();

// Nothing where nobody launched us; a run of one process is a place, too. A variable set to ""
// counts as not set. Of nested launchers the inner one is believed: torchrun, then mpirun, then
// srun.
//
// Throws ConfigError, naming the variables and their values, where a launcher's are half set, are
// not numbers or contradict each other. It is better to stop than to train as a rank of nothing.
std::optional<LaunchedPlace> find_place(const Environment& environment);

// Whether this process is a launcher's rank 0, or nobody launched it: who writes files and talks.
bool is_primary_process();

}  // namespace lockstep::process

// Programs that were written for 0.1 call it by this name.
namespace lockstep::launch {
using process::is_primary_process;
}  // namespace lockstep::launch
