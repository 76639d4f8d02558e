// Some samples of a data set, in any order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

class Subset : public Dataset {
 public:
  // Sample i is sample indices[i] of `dataset`. An index may be there more than once. Throws
  // ConfigError if `dataset` is null, and DataError if an index is out of range.
  Subset(DatasetPtr dataset, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  Batch sample(std::int64_t index) const override;
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override;
  // The random numbers are those of the sample in `dataset`.
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;
  bool is_random() const override { return dataset_->is_random(); }
  std::string name_of(std::int64_t index) const override;
  std::vector<std::string> class_names() const override { return dataset_->class_names(); }
  torch::Tensor column(std::string_view key) const override;

  std::vector<DatasetPtr> parts() const override { return {dataset_}; }

  const DatasetPtr& dataset() const { return dataset_; }

 private:
  std::int64_t original(std::int64_t index) const;
  std::vector<std::int64_t> originals(std::span<const std::int64_t> indices) const;

  DatasetPtr dataset_;
  std::vector<std::int64_t> indices_;
};

}  // namespace lockstep::data
