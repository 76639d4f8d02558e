// Samples that are rows of tensors in memory.
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
  torch::Tensor tensor;         // [N, ...], kept in its own type
  TransformPtr transform = {};  // from the stored rows to those of the batch
};

class TensorDataset : public Dataset {
 public:
  // Throws DataError where a tensor has no rows, or not as many as the first one; ConfigError where
  // there is no column or a key comes twice.
  explicit TensorDataset(std::vector<Column> columns);

  // "features" and "targets", as they are.
  TensorDataset(torch::Tensor features, torch::Tensor targets);

  std::int64_t size() const override { return size_; }
  Batch sample(std::int64_t index) const override;

  // One pass over the picked rows: copied, or converted as they are copied. Throws DataError naming
  // an index that is out of range, or the key whose transform cannot work.
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override;

  // The stored tensors, untransformed.
  const std::vector<Column>& columns() const { return columns_; }

 private:
  std::vector<Column> columns_;
  std::vector<FusedTransform> transforms_;  // one a column
  std::int64_t size_ = 0;
};

DatasetPtr tensor_dataset(std::vector<Column> columns);

}  // namespace lockstep::data
