#include "lockstep/log/epoch_journal.h"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/warn.h"

namespace lockstep {

void EpochJournal::log_metrics(const Record& record) {
  if (record.scope == Scope::kBatch) return;
  if (start_ && *start_ <= last_kept_start_) return;
  if (entries_.size() >= kMost) {
    return warn_once(fmt::format(
        "more than {} rows were logged in an epoch; if the run goes on inside of it in another "
        "process, the later ones are lost. Callbacks should log rows of batches with Scope::kBatch",
        kMost));
  }
  entries_.push_back({.record = record, .start = start_});
}

void EpochJournal::restore(Entries entries, std::int64_t last) {
  entries_ = std::move(entries);
  last_kept_start_ = last;
}

}  // namespace lockstep
