#include "lockstep/data/subset.h"

#include <utility>

#include "lockstep/data/gather.h"

namespace lockstep::data {

Subset::Subset(DatasetPtr dataset, std::vector<std::int64_t> indices)
    : WrapperDataset("Subset", std::move(dataset)), indices_(std::move(indices)) {
  check_indices(indices_, inner().size());
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

Batch Subset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  return inner().sample_in_epoch(original(index), key);
}

Batch Subset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                              Batch reuse) const {
  return inner().gather_in_epoch(originals(indices), key, std::move(reuse));
}

std::string Subset::name_of(std::int64_t index) const {
  return inner().name_of(original(index));
}

torch::Tensor Subset::column(std::string_view key) const {
  const torch::Tensor all = inner().column(key);
  if (!all.defined()) return all;
  return all.index_select(0, torch::tensor(indices_, torch::kInt64).to(all.device()));
}

std::vector<std::int64_t> Subset::examples(std::int64_t count) const {
  return Dataset::examples(count);  // the indices of the other data set are not ours
}

}  // namespace lockstep::data
