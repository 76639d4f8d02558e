// What can happen to a run, and what is promised then: the table of all faults.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/chaos/random_source.h"

namespace lockstep::chaos {

enum class TrainedProgram { kMnist, kGan };

enum class Transport : unsigned {
  kShm = 1,      // forked workers, shared memory
  kGloo = 2,     // forked workers, TCP
  kLaunch = 4,   // `lockstep launch` on one node
  kNodes = 8,    // `lockstep launch` on two nodes, each in a network namespace
  kElastic = 16  // the same with `--nnodes 1:2`
};

enum class Victim {
  kWorker,     // a forked worker
  kTemplate,   // the process that forks workers
  kCaller,     // the program itself, which is rank 0 of forked workers
  kRank,       // any rank under the launcher
  kLauncher,   // of any node
  kLauncher0,  // of the node that holds the rendezvous
  kLauncher1,  // of the other node
  kReaper,     // the launcher's orphan reaper
  kGroup,      // all processes, as Ctrl-C on a terminal reaches them
  kEveryone,   // any process that comes to the place
  kLink,       // the link between two nodes
  kDisk,       // the disk of the run's folder
  kFile,       // a file of the run's folder, after the run was killed
};

enum class FaultKind {
  kKill,
  kSegv,
  kStop,       // for good
  kShortStop,  // continued within the time limit
  kLongStop,   // continued after it
  kException,
  kLasting,  // an exception that comes every time
  kInterrupt,
  kTerminate,
  kCut,       // for good
  kShortCut,  // the link is back within the time limit
  kLongCut,   // the link is back after it
  kFullDisk,
  kTornWrite,
  kFlippedBit,
};

enum class Moment : unsigned {
  kStart = 1,
  kTraining = 2,
  kSaving = 4,    // when a checkpoint is being written
  kRecovery = 8,  // while the run recovers from the death of a worker or a rank
  kEnd = 16,      // after the last epoch
};

// What the run does after the fault. In each case a run that ends with 0 has the weights and logs
// of the undisturbed run, and so has a resumed run.
enum class Promise {
  kContinues,    // it ends by itself with 0
  kUndisturbed,  // it ends by itself with 0, without a recovery
  kEnds,         // it ends with another code than 0, in time, and can be resumed
  kEither,       // one of these
};

std::string_view name_of(TrainedProgram program);
std::string_view name_of(Transport transport);
std::string_view name_of(Victim victim);
std::string_view name_of(FaultKind fault);
std::string_view name_of(Moment moment);

// A line of the table. `transports` and `moments` are sums of the values of the enums.
struct FaultRow {
  unsigned transports = 0;
  Victim victim = Victim::kWorker;
  FaultKind fault = FaultKind::kKill;
  Promise promise = Promise::kContinues;
  unsigned moments = 0;
};
std::span<const FaultRow> fault_rows();

struct Scenario {
  std::uint64_t seed = 0;  // from which everything else here was chosen
  TrainedProgram program = TrainedProgram::kMnist;
  Transport transport = Transport::kShm;
  Victim victim = Victim::kWorker;
  FaultKind fault = FaultKind::kKill;
  Moment moment = Moment::kTraining;
  Promise promise = Promise::kContinues;

  // "mnist shm worker kill training"
  std::string name() const;
  // "shm worker kill", by which results are counted.
  std::string group() const;
};

struct ScenarioOptions {
  bool restarts = true;    // runs have --max-restarts; if not, a lost worker ends the run
  bool elastic = false;    // `--nnodes 1:2` instead of `--nnodes 2`
  bool namespaces = true;  // network namespaces can be made
  bool mounts = true;      // small disks can be mounted
  std::string only = {};   // words of a scenario's name, separated by commas; empty: all
};

// All scenarios that the options allow, with seed 0. Words of `only` that name the same thing (two
// transports) are alternatives; a scenario has to fit all kinds of words. Throws ConfigError if a
// word is unknown or nothing fits.
std::vector<Scenario> scenarios(const ScenarioOptions& options);

// How many scenarios this machine does not allow, of those that `only` chooses.
std::size_t count_impossible(const ScenarioOptions& options);

// Chooses a transport first, then a fault, then the rest, so that every transport gets as many
// faults as the others. The rest of what is random comes from `random` afterwards.
Scenario choose(const std::vector<Scenario>& all, std::uint64_t seed, RandomSource& random);

}  // namespace lockstep::chaos
