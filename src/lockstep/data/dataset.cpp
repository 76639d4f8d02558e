#include "lockstep/data/dataset.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "lockstep/data/collate.h"

namespace lockstep::data {

namespace {

const Collate& stacked() {
  static const Collate collate = stack();
  return collate;
}

}  // namespace

Batch Dataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return make_batch(*this, stacked(), {.indices = indices, .reuse = std::move(reuse)});
}

Batch Dataset::sample_in_epoch(std::int64_t index, const EpochKey&) const {
  return sample(index);
}

Batch Dataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey&,
                               Batch reuse) const {
  return gather(indices, std::move(reuse));
}

std::string Dataset::name_of(std::int64_t index) const {
  return fmt::format("sample {}", index);
}

torch::Tensor Dataset::column(std::string_view) const {
  return {};
}

std::vector<std::int64_t> Dataset::examples(std::int64_t count) const {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(count, size())));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

Batch RandomDataset::gather(std::span<const std::int64_t> indices, Batch reuse) const {
  return gather_in_epoch(indices, {}, std::move(reuse));
}

Batch RandomDataset::sample_in_epoch(std::int64_t index, const EpochKey& key) const {
  SampleContext context(key, index);
  return sample(context);
}

Batch RandomDataset::gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                                     Batch reuse) const {
  return make_batch(*this, stacked(), {.indices = indices, .key = key, .reuse = std::move(reuse)});
}

}  // namespace lockstep::data
