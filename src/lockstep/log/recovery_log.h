// recoveries.jsonl: one line of JSON for each time that a run went on after a fault.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

struct Recovery {
  std::chrono::system_clock::time_point time = {};  // when the failure was noticed
  int rank = 0;                                     // that failed; -1: a whole host was lost
  std::string kind = {};                            // "lost", "hang", "error", "out of memory"
  std::string reason = {};                          // "its process was killed by signal 9 (Killed)"
  std::int64_t epoch = 0;                           // where the rank was; 0: before the first epoch
  std::int64_t batch = 0;
  // Batches that were finished and were done again. Nothing if they are not known, because the
  // process that counted them was lost.
  std::optional<std::int64_t> repeated_batches = {};
  double seconds = 0;  // from the moment when the failure was noticed to the next finished batch
  std::int64_t workers = 1;  // that go on
};

// {"time", "rank", "kind", "reason", "epoch", "batch", "repeated_batches", "seconds", "workers"}
// and a newline. The time is in UTC, as in "2026-01-31T12:00:00.123Z".
std::string to_json_line(const Recovery& recovery);

// Appends the line to the file, which is made if it does not exist. If the last line there is not
// complete, it is removed. Throws Error; then the file has whole lines only.
void append_recovery(const std::filesystem::path& path, const Recovery& recovery);

// "Recovered: rank 1 (in epoch 2, batch 7): its process was killed by signal 9 (Killed); restart 1
// of 5, 3 batches repeated, 0.12 s"
struct RestartCount {
  std::int64_t restart = 1;              // from 1
  std::optional<std::int64_t> most = 1;  // nothing: lost nodes do not count
};
std::string describe(const Recovery& recovery, const RestartCount& count);

}  // namespace lockstep
