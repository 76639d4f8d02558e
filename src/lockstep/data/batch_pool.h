// Batches that were handed out, kept so that their memory can be used again once nobody holds them.
#pragma once

#include <cstddef>
#include <deque>

#include "lockstep/data/batch.h"

namespace lockstep::data {

class BatchPool {
 public:
  // Remembers at most so many.
  explicit BatchPool(std::size_t capacity) : capacity_(capacity) {}

  void lend(const Batch& batch);

  // A batch whose memory nobody else holds, neither its tensors nor a view of them nor autograd; an
  // empty one where there is none.
  Batch take();

 private:
  std::size_t capacity_;
  std::deque<Batch> lent_;  // oldest first
};

}  // namespace lockstep::data
