// Gives a pass its batches on the device, and copies the next ones while the device still works on
// those before.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>

#include "lockstep/data/batch.h"
#include "lockstep/train/device_copies.h"

namespace lockstep {

class BatchFeed {
 public:
  // Without copies, a batch stays where it was read, and nothing is read ahead. They must outlive
  // the feed.
  explicit BatchFeed(DeviceCopies* copies) : copies_(copies) {}

  using Read = std::function<Batch()>;

  // The batch that was read first of those that are ahead. If there is none, reads one. Throws what
  // reading it threw, also if that was earlier.
  Batch next(const Read& read);

  // Reads a batch and begins to copy it. An exception is kept for next(): the batch before must be
  // finished first.
  void read_ahead(const Read& read);

  bool has_copies() const { return copies_ != nullptr; }
  bool is_ahead() const { return !ahead_.empty(); }

  // Forgets what was read ahead, if the pass ends before its last batch.
  void drop() { ahead_.clear(); }

 private:
  struct Ahead {
    std::unique_ptr<ArrivingBatch> batch;
    std::exception_ptr error;
  };

  DeviceCopies* copies_;
  std::deque<Ahead> ahead_;
};

}  // namespace lockstep
