#include "lockstep/data/concat.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/gather.h"
#include "lockstep/data/scaling.h"

namespace lockstep::data {
namespace {

// Two copies of a data set must not draw the same numbers.
EpochKey key_of_dataset(const EpochKey& key, std::size_t dataset) {
  if (dataset == 0) return key;
  SampleRandom random({.seed = key.seed, .epoch = 0}, -1 - static_cast<std::int64_t>(dataset));
  return {.seed = random.bits(), .epoch = key.epoch};
}

// The samples of a batch that come from one data set.
struct BatchPart {
  std::size_t dataset = 0;
  std::vector<std::int64_t> indices = {};  // in the data set
  std::vector<std::int64_t> rows = {};     // in the batch
  Batch batch = {};
};

void check_equal_keys(const BatchPart& first, const BatchPart& other) {
  auto keys = first.batch.keys();
  auto others = other.batch.keys();
  std::ranges::sort(keys);
  std::ranges::sort(others);
  if (keys == others) return;
  throw DataError("concat: expected the same keys, but data set {} has {} and data set {} has {}",
                  first.dataset, join(keys, ", "), other.dataset, join(others, ", "));
}

// A value of a batch must be a row or an element per sample to be put in order.
void check_row_count(const std::string& key, const BatchPart& part, std::int64_t count) {
  if (count == std::ssize(part.rows)) return;
  throw DataError(
      "concat: '{}': expected {} values, one per sample, in a batch of data set {}, got {}; set "
      "the loader's collate, which makes batches from single samples",
      key, part.rows.size(), part.dataset, count);
}

void check_equal_rows(const std::string& key, const BatchPart& first, const BatchPart& other) {
  const torch::Tensor& one = first.batch[key];
  const torch::Tensor& two = other.batch[key];
  check_row_count(key, first, one.dim() == 0 ? 0 : one.size(0));
  check_row_count(key, other, two.dim() == 0 ? 0 : two.size(0));
  if (one.scalar_type() == two.scalar_type() && one.sizes().slice(1) == two.sizes().slice(1)) {
    return;
  }
  throw DataError(
      "concat: '{}': expected the same type and shape of samples, but a batch of data set {} is {} "
      "and one of data set {} is {}",
      key, first.dataset, describe(one), other.dataset, describe(two));
}

std::size_t row_count(const std::vector<BatchPart>& parts) {
  std::size_t count = 0;
  for (const BatchPart& part : parts) count += part.rows.size();
  return count;
}

// The rows of all parts, in the order of the batch.
torch::Tensor joined_rows(const std::string& key, const std::vector<BatchPart>& parts,
                          const Batch& reuse) {
  for (const BatchPart& part : parts) check_equal_rows(key, parts.front(), part);
  const torch::Tensor& first = parts.front().batch[key];
  std::vector<std::int64_t> shape = first.sizes().vec();
  shape[0] = static_cast<std::int64_t>(row_count(parts));
  torch::Tensor out = first.device().is_cpu()
                          ? reuse_or_allocate(reuse, key, shape, first.scalar_type())
                          : torch::empty(shape, first.options());
  for (const BatchPart& part : parts) {
    out.index_copy_(0, torch::tensor(part.rows, torch::kInt64).to(out.device()), part.batch[key]);
  }
  return out;
}

Batch::List joined_list(const std::string& key, const std::vector<BatchPart>& parts) {
  Batch::List all(row_count(parts));
  for (const BatchPart& part : parts) {
    const Batch::List& list = part.batch.list(key);
    check_row_count(key, part, std::ssize(list));
    for (std::size_t i = 0; i < list.size(); ++i) {
      all[static_cast<std::size_t>(part.rows[i])] = list[i];
    }
  }
  return all;
}

Batch joined_parts(const std::vector<BatchPart>& parts, const Batch& reuse) {
  for (const BatchPart& part : parts) check_equal_keys(parts.front(), part);
  const Batch& first = parts.front().batch;
  Batch batch;
  for (const auto& [key, tensor] : first) batch.set(key, joined_rows(key, parts, reuse));
  for (const auto& [key, list] : first.lists()) batch.set(key, joined_list(key, parts));
  for (const auto& [key, nested] : first.nested_batches()) {
    std::vector<BatchPart> inner;
    for (const BatchPart& part : parts) {
      inner.push_back(
          {.dataset = part.dataset, .rows = part.rows, .batch = part.batch.nested(key)});
    }
    const Batch* const old = reuse.find_nested(key);
    batch.set(key, joined_parts(inner, old == nullptr ? Batch() : *old));
  }
  return batch;
}

}  // namespace

ConcatDataset::ConcatDataset(std::vector<DatasetPtr> datasets)
    : CompositeDataset("concat", std::move(datasets)) {
  std::int64_t end = 0;
  for (const DatasetPtr& dataset : this->datasets()) {
    end += dataset->size();
    ends_.push_back(end);
  }
}

std::int64_t ConcatDataset::first_of(std::size_t dataset) const {
  return dataset == 0 ? 0 : ends_[dataset - 1];
}

ConcatDataset::Place ConcatDataset::place_of(std::int64_t index) const {
  check_indices({&index, 1}, size());
  const auto end = std::ranges::upper_bound(ends_, index);
  const auto dataset = static_cast<std::size_t>(end - ends_.begin());
  return {.dataset = dataset, .index = index - first_of(dataset)};
}

Batch ConcatDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  const Place place = place_of(index);
  return datasets()[place.dataset]->sample_in_epoch(place.index,
                                                    key_of_dataset(key, place.dataset));
}

Batch ConcatDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                     Batch reuse) const {
  std::vector<BatchPart> parts(datasets().size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const Place place = place_of(indices[row]);
    parts[place.dataset].dataset = place.dataset;
    parts[place.dataset].indices.push_back(place.index);
    parts[place.dataset].rows.push_back(static_cast<std::int64_t>(row));
  }
  std::erase_if(parts, [](const BatchPart& part) { return part.rows.empty(); });
  if (parts.empty()) return datasets().front()->gather_in_epoch({}, key, std::move(reuse));
  for (BatchPart& part : parts) {
    part.batch = datasets()[part.dataset]->gather_in_epoch(
        part.indices, key_of_dataset(key, part.dataset), parts.size() == 1 ? reuse : Batch());
  }
  if (parts.size() == 1) return std::move(parts.front().batch);
  return joined_parts(parts, reuse);
}

std::string ConcatDataset::name_of(std::int64_t index) const {
  const Place place = place_of(index);
  return fmt::format("{} of data set {}", datasets()[place.dataset]->name_of(place.index),
                     place.dataset);
}

std::vector<std::string> ConcatDataset::class_names() const {
  auto names = datasets().front()->class_names();
  const bool all_have_them = std::ranges::all_of(
      datasets(), [&](const DatasetPtr& dataset) { return dataset->class_names() == names; });
  return all_have_them ? std::move(names) : std::vector<std::string>();
}

torch::Tensor ConcatDataset::column(std::string_view key) const {
  std::vector<torch::Tensor> columns;
  for (const DatasetPtr& dataset : datasets()) {
    columns.push_back(dataset->column(key));
    const torch::Tensor& first = columns.front();
    const torch::Tensor& last = columns.back();
    if (!last.defined() || last.scalar_type() != first.scalar_type() ||
        last.device() != first.device() || last.sizes().slice(1) != first.sizes().slice(1)) {
      return {};
    }
  }
  return torch::cat(columns);
}

bool ConcatDataset::is_here(std::int64_t index) const {
  const Place place = place_of(index);
  return datasets()[place.dataset]->is_here(place.index);
}

std::vector<std::int64_t> ConcatDataset::examples(std::int64_t count) const {
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < datasets().size() && std::ssize(indices) < count; ++i) {
    for (const std::int64_t index : datasets()[i]->examples(count - std::ssize(indices))) {
      indices.push_back(first_of(i) + index);
    }
  }
  return indices;
}

const Scaling& ConcatDataset::scaling() const {
  const Scaling& first = datasets().front()->scaling();
  for (std::size_t i = 1; i < datasets().size(); ++i) {
    const Scaling& other = datasets()[i]->scaling();
    if (other == first) continue;
    throw DataError(
        "concat: expected data sets that are scaled in the same way, because predictions are "
        "scaled back, but data set 0 has the scaling ({}) and data set {} has ({}); set the "
        "`scaling` of all of them to that of the first one",
        describe(first), i, describe(other));
  }
  return first;
}

DatasetPtr concat(std::vector<DatasetPtr> datasets) {
  return std::make_shared<const ConcatDataset>(std::move(datasets));
}

}  // namespace lockstep::data
