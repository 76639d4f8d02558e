#include "lockstep/data/list_dataset.h"

#include <memory>
#include <utility>

#include "lockstep/data/gather.h"

namespace lockstep::data {

Batch ListDataset::sample(std::int64_t index) const {
  check_indices({&index, 1}, size());
  return samples_[static_cast<std::size_t>(index)];
}

DatasetPtr list_dataset(std::vector<Batch> samples) {
  return std::make_shared<const ListDataset>(std::move(samples));
}

}  // namespace lockstep::data
