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

std::int64_t Subset::original(std::int64_t index) const {
  check_indices({&index, 1}, size());
  return indices_[static_cast<std::size_t>(index)];
}

std::vector<std::int64_t> Subset::originals(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  std::vector<std::int64_t> mapped;
  mapped.reserve(indices.size());
  for (const std::int64_t index : indices) {
    mapped.push_back(indices_[static_cast<std::size_t>(index)]);
  }
  return mapped;
}

Batch Subset::sample(std::int64_t index) const {
  return dataset_->sample(original(index));
}

Batch Subset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return dataset_->gather(originals(indices), std::move(reuse));
}

Batch Subset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  return dataset_->sample_in_epoch(original(index), key);
}

Batch Subset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                              Batch reuse) const {
  return dataset_->gather_in_epoch(originals(indices), key, std::move(reuse));
}

std::string Subset::name_of(std::int64_t index) const {
  return dataset_->name_of(original(index));
}

torch::Tensor Subset::column(std::string_view key) const {
  const torch::Tensor all = dataset_->column(key);
  if (!all.defined()) return all;
  return all.index_select(0, torch::tensor(indices_, torch::kInt64).to(all.device()));
}

}  // namespace lockstep::data
