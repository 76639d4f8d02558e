#include "lockstep/data/merge.h"

#include <memory>
#include <ranges>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {

MergedDataset::MergedDataset(std::vector<DatasetPtr> datasets) : datasets_(std::move(datasets)) {
  if (datasets_.empty()) throw ConfigError("merge: expected at least one data set, got none");
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    if (!datasets_[i]) throw ConfigError("merge: data set {} is a null pointer", i);
    if (datasets_[i]->size() != size()) {
      throw DataError("merge: expected equally many samples, but data set 0 has {} and {} has {}",
                      size(), i, datasets_[i]->size());
    }
  }
}

Batch MergedDataset::sample(std::int64_t index) const {
  return sample_in_epoch(index, {});
}

Batch MergedDataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return gather_in_epoch(indices, {}, std::move(reuse));
}

Batch MergedDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  Batch merged;
  for (const DatasetPtr& dataset : datasets_) merged.update(dataset->sample_in_epoch(index, key));
  return merged;
}

Batch MergedDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                     Batch reuse) const {
  Batch merged;
  for (const DatasetPtr& dataset : datasets_) {
    // Each takes the memory of its own keys. A key that two have is overwritten by the later one,
    // whose value is wanted.
    merged.update(dataset->gather_in_epoch(indices, key, reuse));
  }
  return merged;
}

std::string MergedDataset::name_of(std::int64_t index) const {
  return datasets_.front()->name_of(index);
}

torch::Tensor MergedDataset::column(std::string_view key) const {
  for (const DatasetPtr& dataset : std::views::reverse(datasets_)) {
    const torch::Tensor found = dataset->column(key);
    if (found.defined()) return found;
    // It may have the key without knowing the column; then an earlier one must not answer.
    if (size() > 0 && dataset->sample(0).contains(key)) return {};
  }
  return {};
}

DatasetPtr merge(std::vector<DatasetPtr> datasets) {
  return std::make_shared<const MergedDataset>(std::move(datasets));
}

}  // namespace lockstep::data
