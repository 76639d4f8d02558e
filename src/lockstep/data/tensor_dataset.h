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
#include "lockstep/data/sample_chain.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

struct Column {
  std::string key;       // its name in the batch
  torch::Tensor tensor;  // [N, ...], stored in its own type
  // Makes the rows of the batch from the stored rows. Its steps for single samples draw from the
  // random numbers of the sample. All columns get the same numbers.
  TransformPtr transform = {};
  // For rows that are read from a file: its name, for messages. The tensor may be a view of the
  // file, larger than the memory: it is never copied as a whole. If it is contiguous, its numbers
  // may begin at any address.
  std::string file = {};
  // If false, a row with a value that is NaN or infinite is an error when it is gathered.
  bool allow_non_finite = true;
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
  // DataError, which names an index that is out of range, the key whose transform failed, or the
  // file, the row and the number of values that are not finite.
  // Without an epoch, random numbers are those of the first epoch of a run with the default seed.
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override;
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;
  bool is_random() const override;

  std::string name_of(std::int64_t index) const override;

  torch::Tensor column(std::string_view key) const override;  // transformed

  // The stored tensors, untransformed.
  const std::vector<Column>& columns() const { return columns_; }

 private:
  bool has_sample_steps() const;
  Batch gather_rows(std::span<const std::int64_t> indices, const EpochKey& key,
                    const Batch& reuse) const;
  // A column whose transform has steps for single samples.
  torch::Tensor stack_samples(std::size_t column, std::span<const std::int64_t> indices,
                              const EpochKey& key, const Batch& reuse) const;

  std::vector<Column> columns_;
  std::vector<SampleChain> chains_;         // one per column
  std::vector<FusedTransform> transforms_;  // one per column, for those without steps for samples
  std::int64_t size_ = 0;
};

DatasetPtr tensor_dataset(std::vector<Column> columns);

}  // namespace lockstep::data
