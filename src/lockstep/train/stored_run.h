// The last point of a run in memory that outlives the ranks (process/memory_file.h). The ranks that
// `lockstep launch` starts after a failure find it there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/process/memory_file.h"
#include "lockstep/train/kept_run.h"
#include "lockstep/train/run_totals.h"

namespace lockstep {

struct StoredContent {
  // Nothing if the run was lost before its first point: it had only begun to write to its folder.
  std::optional<KeptRun> point = {};
  RunTotals totals = {};
  std::int64_t recoveries = 0;  // completed before the point
};

class StoredRun {
 public:
  // `run` counts the program's calls of train(). A program that is started again makes the same
  // calls in the same order.
  StoredRun(std::shared_ptr<process::MemoryFile> file, int run);

  // Throws CheckpointError if the point cannot be read back.
  std::optional<StoredContent> read() const;
  // Throws Error if there is not enough memory. The point before stays then.
  void write(const StoredContent& content);

  process::MemoryFile& file() const { return *file_; }

 private:
  std::shared_ptr<process::MemoryFile> file_;
  int run_;
  std::uint64_t sequence_ = 0;
};

}  // namespace lockstep
