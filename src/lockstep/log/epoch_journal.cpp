#include "lockstep/log/epoch_journal.h"

#include <utility>

namespace lockstep {

void EpochJournal::log_metrics(const Record& record) {
  if (record.scope == Scope::kBatch) return;
  if (start_ && *start_ <= last_kept_start_) return;
  entries_.push_back({.record = record, .start = start_});
}

void EpochJournal::restore(Entries entries, std::int64_t last) {
  entries_ = std::move(entries);
  last_kept_start_ = last;
}

}  // namespace lockstep
