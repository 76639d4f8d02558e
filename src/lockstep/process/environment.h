// Finds out which rank this process is, if a launcher has started it. torchrun, the mpirun of Open
// MPI, MPICH or Intel MPI, and Slurm's srun set environment variables that say so.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "lockstep/base/topology.h"

namespace lockstep::process {

// kHydra is the mpirun (mpiexec) of MPICH and Intel MPI.
enum class Launcher { kTorchrun, kOpenMpi, kHydra, kSlurm };

struct LaunchedPlace {
  // The launcher whose variables were used. If the user sets RANK and the related variables by
  // hand, it is kTorchrun.
  Launcher launcher = Launcher::kTorchrun;
  // local_size is a hint. A caller that must be sure groups the processes by host.
  Topology topology = {};
  // False: no variable gives the number of processes on this host. Then local_size is
  // local_rank + 1, the smallest possible number.
  bool local_size_known = false;
  // MASTER_ADDR and MASTER_PORT, the address of the rendezvous. torchrun always sets both.
  std::optional<std::string> master_address = {};
  std::optional<int> master_port = {};
  // torchrun's agent already has a c10d TCPStore that listens at the master address.
  bool agent_store = false;
  // Tells runs apart; it is the same in all processes of one run. It is made of torchrun's run id
  // and restart count, Open MPI's job, hydra's daemon, or Slurm's job and step. "" if there is
  // none. torchrun without --rdzv_id calls every run "none", so it is unique only together with the
  // master address.
  std::string run_id = {};
};

using Environment = std::map<std::string, std::string>;

// What results depend on besides the seed, as a launcher says it for programs that do not say it
// themselves: parts of every batch, and threads of each part's computation. `lockstep launch` sets
// them if the number of ranks may change during the run.
inline constexpr const char* kShardsVariable = "LOCKSTEP_SHARDS";
inline constexpr const char* kThreadsVariable = "LOCKSTEP_THREADS";

// Set to 1 by `lockstep launch` if nodes may leave the run (--nnodes MIN:MAX). A lost node is then
// no reason to end it, and does not count as a restart.
inline constexpr const char* kElasticVariable = "LOCKSTEP_ELASTIC";

// The value of a variable that is a positive integer. Nothing if it is not set. Throws ConfigError.
std::optional<int> positive_variable(const Environment& environment, const std::string& name);

// All environment variables of this process. No other thread may change them during the call.
Environment current_environment();

// The place that a launcher gave this process. Nothing if no launcher started it; a launcher may
// also start a single process. A variable set to "" counts as not set. If launchers are nested, the
// inner one counts: torchrun before mpirun, mpirun before srun.
//
// Throws ConfigError, naming the variables and their values, if some variables of a launcher are
// missing, are not numbers or contradict each other. Otherwise the process might train with a wrong
// rank.
std::optional<LaunchedPlace> find_place(const Environment& environment);

// Whether this process is a launcher's rank 0 or was started without a launcher. Only this process
// writes files and prints messages.
bool is_primary_process();

}  // namespace lockstep::process

// Programs that were written for version 0.1 use this name.
namespace lockstep::launch {
using process::is_primary_process;
}  // namespace lockstep::launch
