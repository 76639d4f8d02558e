#include "lockstep/data/concat.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/gather.h"

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

bool has_only_tensors(const BatchPart& part) {
  return part.batch.lists().empty() && part.batch.nested_batches().empty();
}

void check_equal_keys(const BatchPart& first, const BatchPart& other) {
  auto keys = first.batch.keys();
  auto others = other.batch.keys();
  std::ranges::sort(keys);
  std::ranges::sort(others);
  if (keys == others) return;
  throw DataError("concat: expected the same keys, but data set {} has {} and data set {} has {}",
                  first.dataset, join(keys, ", "), other.dataset, join(others, ", "));
}

void check_equal_rows(const std::string& key, const BatchPart& first, const BatchPart& other) {
  const torch::Tensor& one = first.batch[key];
  const torch::Tensor& two = other.batch[key];
  if (one.scalar_type() == two.scalar_type() && one.sizes().slice(1) == two.sizes().slice(1)) {
    return;
  }
  throw DataError(
      "concat: '{}': expected the same type and shape of samples, but a batch of data set {} is {} "
      "and one of data set {} is {}",
      key, first.dataset, describe(one), other.dataset, describe(two));
}

// The rows of all parts, in the order of the batch.
torch::Tensor joined(const std::string& key, const std::vector<BatchPart>& parts,
                     const Batch& reuse) {
  const torch::Tensor& first = parts.front().batch[key];
  std::vector<std::int64_t> shape = first.sizes().vec();
  shape[0] = 0;
  for (const BatchPart& part : parts) shape[0] += static_cast<std::int64_t>(part.rows.size());
  torch::Tensor out = first.device().is_cpu()
                          ? reuse_or_allocate(reuse, key, shape, first.scalar_type())
                          : torch::empty(shape, first.options());
  for (const BatchPart& part : parts) {
    check_equal_rows(key, parts.front(), part);
    out.index_copy_(0, torch::tensor(part.rows, torch::kInt64).to(out.device()), part.batch[key]);
  }
  return out;
}

}  // namespace

ConcatDataset::ConcatDataset(std::vector<DatasetPtr> datasets) : datasets_(std::move(datasets)) {
  if (datasets_.empty()) throw ConfigError("concat: expected at least one data set, got none");
  std::int64_t end = 0;
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    if (!datasets_[i]) throw ConfigError("concat: data set {} is a null pointer", i);
    end += datasets_[i]->size();
    ends_.push_back(end);
  }
}

ConcatDataset::Place ConcatDataset::place_of(std::int64_t index) const {
  check_indices({&index, 1}, size());
  const auto end = std::ranges::upper_bound(ends_, index);
  const auto dataset = static_cast<std::size_t>(end - ends_.begin());
  return {.dataset = dataset, .index = index - (dataset == 0 ? 0 : ends_[dataset - 1])};
}

Batch ConcatDataset::sample(std::int64_t index) const {
  return sample_in_epoch(index, {});
}

Batch ConcatDataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return gather_in_epoch(indices, {}, std::move(reuse));
}

Batch ConcatDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  const Place place = place_of(index);
  return datasets_[place.dataset]->sample_in_epoch(place.index, key_of_dataset(key, place.dataset));
}

Batch ConcatDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                     Batch reuse) const {
  std::vector<BatchPart> parts(datasets_.size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const Place place = place_of(indices[row]);
    parts[place.dataset].dataset = place.dataset;
    parts[place.dataset].indices.push_back(place.index);
    parts[place.dataset].rows.push_back(static_cast<std::int64_t>(row));
  }
  std::erase_if(parts, [](const BatchPart& part) { return part.rows.empty(); });
  if (parts.empty()) return datasets_.front()->gather_in_epoch({}, key, std::move(reuse));
  for (BatchPart& part : parts) {
    part.batch = datasets_[part.dataset]->gather_in_epoch(
        part.indices, key_of_dataset(key, part.dataset), parts.size() == 1 ? reuse : Batch());
  }
  if (parts.size() == 1) return std::move(parts.front().batch);
  if (!std::ranges::all_of(parts, has_only_tensors)) {
    return make_batch(*this, stack(), {.indices = indices, .key = key, .reuse = std::move(reuse)});
  }
  for (const BatchPart& part : parts) check_equal_keys(parts.front(), part);
  Batch batch;
  for (const auto& [name, tensor] : parts.front().batch) {
    batch.set(name, joined(name, parts, reuse));
  }
  return batch;
}

std::string ConcatDataset::name_of(std::int64_t index) const {
  const Place place = place_of(index);
  return fmt::format("{} of data set {}", datasets_[place.dataset]->name_of(place.index),
                     place.dataset);
}

torch::Tensor ConcatDataset::column(std::string_view key) const {
  std::vector<torch::Tensor> columns;
  for (const DatasetPtr& dataset : datasets_) {
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

DatasetPtr concat(std::vector<DatasetPtr> datasets) {
  return std::make_shared<const ConcatDataset>(std::move(datasets));
}

}  // namespace lockstep::data
