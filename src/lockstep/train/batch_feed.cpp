#include "lockstep/train/batch_feed.h"

#include <utility>

namespace lockstep {

Batch BatchFeed::next(const Read& read) {
  if (copies_ == nullptr) return read();
  if (ahead_.empty()) return copies_->send(read())->take();
  const Ahead first = std::move(ahead_.front());
  ahead_.pop_front();
  if (first.error != nullptr) std::rethrow_exception(first.error);
  return first.batch->take();
}

void BatchFeed::read_ahead(const Read& read) {
  if (copies_ == nullptr) return;
  // Nothing can be read behind a batch that cannot.
  if (!ahead_.empty() && ahead_.back().error != nullptr) return;
  try {
    ahead_.push_back({.batch = copies_->send(read()), .error = nullptr});
  } catch (...) {
    ahead_.push_back({.batch = nullptr, .error = std::current_exception()});
  }
}

}  // namespace lockstep
