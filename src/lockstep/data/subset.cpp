#include "lockstep/data/subset.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/gather.h"

namespace lockstep::data {

Subset::Subset(DatasetPtr dataset, std::vector<std::int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  if (!dataset_) throw ConfigError("Subset: expected a data set, got a null pointer");
  check_indices(indices_, dataset_->size());
}

Batch Subset::sample(std::int64_t index) const {
  check_indices({&index, 1}, size());
  return dataset_->sample(indices_[static_cast<std::size_t>(index)]);
}

Batch Subset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  check_indices(indices, size());
  std::vector<std::int64_t> mapped;
  mapped.reserve(indices.size());
  for (const std::int64_t index : indices) {
    mapped.push_back(indices_[static_cast<std::size_t>(index)]);
  }
  return dataset_->gather(mapped, std::move(reuse));
}

}  // namespace lockstep::data
