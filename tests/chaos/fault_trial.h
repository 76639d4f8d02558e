// One fault: starts a run, injects the fault, waits for the end and checks what was promised.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/chaos/run_record.h"
#include "tests/chaos/scenario.h"

namespace lockstep::chaos {

struct TrialSettings {
  std::filesystem::path
      programs;                 // the folder of mnist, gan, lockstep and the library for exceptions
  std::filesystem::path work;   // the runs get folders here
  bool restarts = true;         // runs have --max-restarts
  std::vector<int> cores = {};  // that runs may use; empty: all
};

struct FaultResult {
  std::uint64_t seed = 0;
  std::string name;               // of the scenario
  std::string group;              // of the scenario
  bool injected = false;          // false: the run was over before
  std::string outcome;            // what happened, for the line about this fault
  int recoveries = 0;             // that the run reports
  bool resumed = false;           // from a checkpoint
  std::vector<double> detection;  // seconds from the fault until the run knew of it
  std::vector<double> recovery;   // seconds from the fault until the next finished batch
  double seconds = 0;             // of the whole trial
  std::string failure;            // what was not as promised, with all details; empty: nothing
};

// What an undisturbed run does, and when.
struct UndisturbedRun {
  RunRecord record;
  double until_workers = 0;  // seconds from the start until there are workers
  double until_end = 0;
};

// The trials of one process. It must not have threads.
class FaultTrials {
 public:
  // Throws Error if the programs are not there.
  FaultTrials(TrialSettings settings, std::vector<Scenario> scenarios);

  FaultResult run(std::uint64_t seed);

 private:
  const UndisturbedRun& undisturbed(TrainedProgram program, Transport transport);

  TrialSettings settings_;
  std::vector<Scenario> scenarios_;
  std::map<std::pair<TrainedProgram, Transport>, UndisturbedRun> undisturbed_;
};

// The user wants to end this program: set by a signal handler, and checked in every wait.
void request_end();
bool end_requested();

// Thrown by FaultTrials::run() then.
class EndRequested {};

}  // namespace lockstep::chaos
