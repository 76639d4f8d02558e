#include "lockstep/data/dataset.h"

#include <utility>

#include "lockstep/data/collate.h"

namespace lockstep::data {

Batch Dataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  static const Collate stacked = stack();
  return make_batch(*this, stacked, indices, std::move(reuse));
}

}  // namespace lockstep::data
