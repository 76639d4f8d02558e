#include "lockstep/data/merge.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

bool has_key(const Dataset& dataset, std::string_view key) {
  const auto readable = dataset.examples(1);
  return !readable.empty() && dataset.sample(readable.front()).contains(key);
}

// Asks the data sets about a key, from the last one on, because its values are used. ask() gives an
// optional. A data set may have the key without knowing more; then an earlier one must not
// answer.
template <typename Ask>
auto known_of(const std::vector<DatasetPtr>& datasets, std::string_view key, const Ask& ask)
    -> decltype(ask(*datasets.front())) {
  for (const DatasetPtr& dataset : std::views::reverse(datasets)) {
    if (auto known = ask(*dataset)) return known;
    if (has_key(*dataset, key)) break;
  }
  return std::nullopt;
}

Scaling merged_scaling(const std::vector<DatasetPtr>& datasets) {
  const auto is_plain = [](const DatasetPtr& dataset) { return dataset->scaling().is_none(); };
  if (std::ranges::all_of(datasets, is_plain)) return {};
  const auto of_key = [&](std::string_view key, ChannelScaling Scaling::*member) {
    return known_of(datasets, key,
                    [&](const Dataset& dataset) {
                      const ChannelScaling& found = dataset.scaling().*member;
                      return found.kind == Normalization::kNone ? std::nullopt
                                                                : std::optional(found);
                    })
        .value_or(ChannelScaling());
  };
  return {.features = of_key("features", &Scaling::features),
          .targets = of_key("targets", &Scaling::targets)};
}

}  // namespace

MergedDataset::MergedDataset(std::vector<DatasetPtr> datasets)
    : CompositeDataset("merge", std::move(datasets)) {
  for (std::size_t i = 0; i < this->datasets().size(); ++i) {
    const std::int64_t other = this->datasets()[i]->size();
    if (other != size()) {
      throw DataError("merge: expected equally many samples, but data set 0 has {} and {} has {}",
                      size(), i, other);
    }
  }
  scaling_ = merged_scaling(this->datasets());
}

Batch MergedDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  Batch merged;
  for (const DatasetPtr& dataset : datasets()) merged.update(dataset->sample_in_epoch(index, key));
  return merged;
}

Batch MergedDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                     Batch reuse) const {
  Batch merged;
  for (const DatasetPtr& dataset : datasets()) {
    // Each takes the memory of its own keys. A key that two have is overwritten by the later one,
    // whose value is wanted.
    merged.update(dataset->gather_in_epoch(indices, key, reuse));
  }
  return merged;
}

std::string MergedDataset::name_of(std::int64_t index) const {
  return datasets().front()->name_of(index);
}

std::vector<std::string> MergedDataset::class_names() const {
  using Names = std::vector<std::string>;
  return known_of(datasets(), "targets",
                  [](const Dataset& dataset) {
                    Names names = dataset.class_names();
                    return names.empty() ? std::nullopt : std::optional(std::move(names));
                  })
      .value_or(Names());
}

torch::Tensor MergedDataset::column(std::string_view key) const {
  return known_of(datasets(), key,
                  [&](const Dataset& dataset) {
                    const torch::Tensor column = dataset.column(key);
                    return column.defined() ? std::optional(column) : std::nullopt;
                  })
      .value_or(torch::Tensor());
}

bool MergedDataset::is_here(std::int64_t index) const {
  return std::ranges::all_of(datasets(),
                             [&](const DatasetPtr& dataset) { return dataset->is_here(index); });
}

DatasetPtr merge(std::vector<DatasetPtr> datasets) {
  return std::make_shared<const MergedDataset>(std::move(datasets));
}

}  // namespace lockstep::data
