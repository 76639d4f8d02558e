#include "lockstep/data/composite_dataset.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/iterable_dataset.h"

namespace lockstep::data {

CompositeDataset::CompositeDataset(std::string_view name, std::vector<DatasetPtr> datasets)
    : datasets_(std::move(datasets)) {
  if (datasets_.empty()) {
    throw ConfigError("{}: expected at least one data set, got none", name);
  }
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    if (!datasets_[i]) {
      throw ConfigError("{}: expected a data set, got a null pointer{}", name,
                        datasets_.size() == 1 ? "" : fmt::format(" (data set {})", i));
    }
    if (dynamic_cast<const IterableDataset*>(datasets_[i].get()) != nullptr) {
      throw ConfigError(
          "{}: expected data whose samples can be read in any order, got a stream "
          "(IterableDataset), which would be read from its beginning for every sample; give the "
          "stream itself to the loader, and choose and change samples in next() of its source, or "
          "read the samples into a list_dataset first",
          name);
    }
  }
}

Batch CompositeDataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return gather_in_epoch(indices, {}, std::move(reuse));
}

Batch CompositeDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                        Batch reuse) const {
  return stack_in_epoch(indices, key, std::move(reuse));
}

bool CompositeDataset::is_random() const {
  return std::ranges::any_of(datasets_, [](const DatasetPtr& part) { return part->is_random(); });
}

std::uint64_t CompositeDataset::random_layers() const {
  std::uint64_t most = Dataset::random_layers();
  for (const DatasetPtr& part : datasets_) most = std::max(most, part->random_layers());
  return most;
}

WrapperDataset::WrapperDataset(std::string_view name, DatasetPtr dataset)
    : CompositeDataset(name, {std::move(dataset)}) {}

Batch WrapperDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  return inner().sample_in_epoch(index, key);
}

std::vector<std::int64_t> WrapperDataset::examples(std::int64_t count) const {
  return inner().examples(count);
}

EpochKey key_of_layer(const EpochKey& key, std::uint64_t layer) {
  constexpr std::uint64_t kLayerStep = 0xd1342543de82ef95;
  return {.seed = key.seed + layer * kLayerStep, .epoch = key.epoch};
}

}  // namespace lockstep::data
