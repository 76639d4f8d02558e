// A data set whose samples are the rows of tensors in memory.
//
//   auto train = std::make_shared<TensorDataset>(features, targets);
//   auto images = tensor_dataset({{"features", bytes, ToTensor()},
//                                 {"targets", labels, Cast(torch::kInt64)}});
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

struct Column {
  std::string key;              // its name in the batch
  torch::Tensor tensor;         // [N, ...], stored in its own type
  TransformPtr transform = {};  // makes the rows of the batch from the stored rows
};

class TensorDataset : public Dataset {
 public:
  // Throws DataError if a tensor has no dimension of rows, or not as many rows as the first one.
  // Throws ConfigError if there is no column or a key is there twice.
  explicit TensorDataset(std::vector<Column> columns);

  // The columns "features" and "targets", without transforms.
  TensorDataset(torch::Tensor features, torch::Tensor targets);

  std::int64_t size() const override { return size_; }
  Batch sample(std::int64_t index) const override;

  // Makes one pass over the selected rows, which are converted while they are copied. Throws
  // DataError, which names an index that is out of range, or the key whose transform failed.
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override;

  torch::Tensor column(std::string_view key) const override;  // transformed

  // The stored tensors, untransformed.
  const std::vector<Column>& columns() const { return columns_; }

 private:
  std::vector<Column> columns_;
  std::vector<FusedTransform> transforms_;  // one per column
  std::int64_t size_ = 0;
};

DatasetPtr tensor_dataset(std::vector<Column> columns);

}  // namespace lockstep::data
