// The last point of a run in memory that outlives the ranks (process/memory_file.h). The ranks that
// `lockstep launch` starts after a failure find it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/process/memory_file.h"
#include "lockstep/train/kept_run.h"
#include "lockstep/train/run_totals.h"

namespace lockstep {

struct StoredContent {
  std::string identity = {};  // of the run, as the program says it
  bool is_finished = false;   // the point is the end of the run
  // Nothing if the run was lost before its first point: it had only begun to write to its folder.
  std::optional<KeptRun> point = {};
  bool is_first_point = false;  // RunMemory::set_first_point()
  RunTotals totals = {};
  std::int64_t recoveries = 0;  // completed before the point
};

// The number of this program's next call of train(), for StoredRun.
int next_stored_run();
// The program leaves out this many calls, because an earlier attempt has finished them. Those that
// follow keep their numbers.
void skip_stored_runs(std::size_t count);

class StoredRun {
 public:
  // `run` counts the program's calls of train(). A program that is started again makes the same
  // calls in the same order.
  StoredRun(std::shared_ptr<process::MemoryFile> file, int run);

  // Throws Error if there is not enough memory. The point before stays then.
  void write(const StoredContent& content);

  // The newest point as bytes, and its number; nothing if there is none. They are for hosts that do
  // not have it: take() stores it there.
  std::optional<process::StoredPoint> stored() const { return file_->read(run_); }
  void take(const process::StoredPoint& point);

  // Throws CheckpointError if the bytes are no point.
  static StoredContent decode(std::string bytes);

  // The number of the newest point; the next one has the next number.
  std::uint64_t sequence() const { return sequence_; }
  void set_sequence(std::uint64_t sequence) { sequence_ = sequence; }

  // Batches since the newest point: process::MemoryFile::count_batches().
  void count_batches(std::int64_t batches) const { file_->count_batches(run_, batches); }
  std::optional<std::int64_t> batches_lost() const { return file_->batches_lost(run_); }

  process::MemoryFile& file() const { return *file_; }

 private:
  std::shared_ptr<process::MemoryFile> file_;
  int run_;
  std::uint64_t sequence_ = 0;
};

}  // namespace lockstep
