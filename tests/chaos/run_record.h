// What a run has left in its folder, as far as it must not depend on faults.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::chaos {

struct RunRecord {
  std::string weights_hash;  // of summary.json; empty if there is none
  std::string results;       // best and last epoch of summary.json, without paths
  // Content of logs/*.csv by name, without columns of times.
  std::map<std::string, std::string> tables;
  // What TensorBoard shows, by folder, tag and step.
  std::map<std::string, std::string> scalars;
};

// Missing files are left out of the record. Throws std::exception if a file cannot be understood,
// or if TensorBoard would show a value twice.
RunRecord read_run(const std::filesystem::path& folder);

// The first difference as a sentence; nothing if there is none.
std::optional<std::string> difference(const RunRecord& expected, const RunRecord& found);

// A CSV file without the columns of times (`_timer/…`).
std::string without_times(std::string_view csv);

// The number of finished epochs in logs/_epoch_.csv.
int finished_epochs(const std::filesystem::path& folder);

// A line of recoveries.jsonl.
struct RecoveryLine {
  std::chrono::system_clock::time_point noticed;  // when the run knew of the failure
  double seconds = 0;                             // from then until the next finished batch
};
// Empty if there is no such file. A last line that is being written is left out.
std::vector<RecoveryLine> read_recoveries(const std::filesystem::path& folder);

// Files that must not be there when a run has ended by itself: half-written ones and the lock.
std::vector<std::filesystem::path> abandoned_files(const std::filesystem::path& folder);

}  // namespace lockstep::chaos
