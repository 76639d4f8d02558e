// A data set of samples that are in memory already, each with tensors of its own.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// For tensors that all have the same shape, TensorDataset is faster.
class ListDataset : public Dataset {
 public:
  explicit ListDataset(std::vector<Batch> samples) : samples_(std::move(samples)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  Batch sample(std::int64_t index) const override;

 private:
  std::vector<Batch> samples_;
};

DatasetPtr list_dataset(std::vector<Batch> samples);

}  // namespace lockstep::data
