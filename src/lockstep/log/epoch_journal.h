// Keeps the metrics that were logged in the current epoch, for snapshots inside of it. Loggers of
// another process that goes on from such a snapshot drop what was logged after the last whole
// epoch. They get these records again, because the batches before the snapshot are not repeated.
//
// Metrics of batches, images, artifacts and histograms are not kept. Loggers treat those in other
// ways (docs/decisions/recovery.md). Of an epoch at most kMost records are kept, because every
// snapshot inside the epoch has them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/log/logger.h"

namespace lockstep {

class EpochJournal final : public Logger {
 public:
  struct Entry {
    Record record;
    // The start of an epoch or of a pass whose hooks logged it. Starts have numbers that increase
    // in the course of the run.
    std::optional<std::int64_t> start = {};
  };
  using Entries = std::vector<Entry>;
  static constexpr std::size_t kMost = 10'000;

  // What was logged before is complete.
  void begin_epoch() { entries_.clear(); }
  // What is logged now belongs to this start, or to none.
  void set_start(std::optional<std::int64_t> start) { start_ = start; }
  void log_metrics(const Record& record) override;

  const Entries& entries() const { return entries_; }
  // The run goes on inside an epoch in which this was logged. The hooks of starts up to `last` are
  // called again; what they log is in `entries` already, so it is left out.
  void restore(Entries entries, std::int64_t last);

 private:
  Entries entries_;
  std::optional<std::int64_t> start_;  // the current one
  std::int64_t last_kept_start_ = -1;
};

}  // namespace lockstep
