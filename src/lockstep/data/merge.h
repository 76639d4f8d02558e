// Several data sets side by side: images from one, labels from another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Sample i has the keys of sample i of each data set. If two have the same key, the later one is
// used. All of them draw the same random numbers for a sample, so that an image and its mask are
// cropped in the same way.
class MergedDataset : public Dataset {
 public:
  // Throws ConfigError if there is none or one is null, and DataError if their sizes differ.
  explicit MergedDataset(std::vector<DatasetPtr> datasets);

  std::int64_t size() const override { return datasets_.front()->size(); }
  Batch sample(std::int64_t index) const override;
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override;
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;
  std::string name_of(std::int64_t index) const override;  // that of the first data set
  torch::Tensor column(std::string_view key) const override;
  std::vector<DatasetPtr> parts() const override { return datasets_; }

 private:
  std::vector<DatasetPtr> datasets_;
};

DatasetPtr merge(std::vector<DatasetPtr> datasets);

}  // namespace lockstep::data
