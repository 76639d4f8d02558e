// Counts results and prints them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/chaos/fault_trial.h"

namespace lockstep::chaos {

// The smallest of the values that at least `percent` percent of them do not exceed. 0 without
// values.
double percentile(std::vector<double> values, double percent);

class ChaosReport {
 public:
  void add(const FaultResult& result);

  int faults() const { return total_.faults; }  // that were injected
  int failures() const { return total_.failures; }
  // Runs that failed before their fault.
  int failures_without_fault() const { return total_.failed_before; }
  int missed() const { return total_.missed; }  // runs that were over before
  // Kinds of faults and moments that were tried at least kEnough times, and each time the run was
  // over before. Then something is wrong with these tests.
  std::vector<std::string> never_injected() const;
  static constexpr int kEnough = 25;

  // "shm worker kill: …": a line for each group of scenarios.
  std::string table() const;
  // "chaos: 1000 faults, 0 failures, …", without a line feed.
  std::string last_line() const;

 private:
  struct GroupCounts {
    int faults = 0, failures = 0, failed_before = 0, missed = 0, recoveries = 0, resumed = 0;
    std::vector<double> detection, recovery;

    void add(const FaultResult& result);
  };

  GroupCounts total_;
  std::map<std::string, GroupCounts> groups_;
  std::map<std::string, GroupCounts> kinds_;  // by fault, and by moment
};

// Results are passed between processes as JSON.
std::string to_json(const FaultResult& result);
FaultResult from_json(const std::string& text);

}  // namespace lockstep::chaos
