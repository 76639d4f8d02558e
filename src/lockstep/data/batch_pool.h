// Keeps batches that were handed out, so that their memory can be used again when no other code
// holds them. Several threads may use it at once.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "lockstep/data/batch.h"

namespace lockstep::data {

class BatchPool {
 public:
  // Keeps at most `capacity` batches.
  explicit BatchPool(std::size_t capacity) : capacity_(capacity) {}

  // Tensors whose memory belongs to other code (torch::from_blob) are not kept.
  void lend(const Batch& batch);

  // Returns a batch whose memory is held only by this pool: there is no other copy or view of its
  // tensors, and autograd does not need them. If there is no such batch, returns an empty one.
  Batch take();

 private:
  std::size_t capacity_;
  std::mutex mutex_;        // of lent_
  std::deque<Batch> lent_;  // oldest first
};

}  // namespace lockstep::data
