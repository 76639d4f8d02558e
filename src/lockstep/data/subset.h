// Some samples of a data set, in any order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/composite_dataset.h"

namespace lockstep::data {

class Subset : public WrapperDataset {
 public:
  // Sample i is sample indices[i] of `dataset`. An index may be there more than once. Throws
  // ConfigError if `dataset` is null or a stream, and DataError if an index is out of range.
  Subset(DatasetPtr dataset, std::vector<std::int64_t> indices);

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  // The random numbers are those of the sample in `dataset`.
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;
  std::string name_of(std::int64_t index) const override;
  torch::Tensor column(std::string_view key) const override;

  bool is_here(std::int64_t index) const override { return inner().is_here(original(index)); }
  std::vector<std::int64_t> examples(std::int64_t count) const override;

 private:
  std::int64_t original(std::int64_t index) const;
  std::vector<std::int64_t> originals(std::span<const std::int64_t> indices) const;

  std::vector<std::int64_t> indices_;
};

}  // namespace lockstep::data
