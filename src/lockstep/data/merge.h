// Several data sets side by side: images from one, labels from another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/composite_dataset.h"
#include "lockstep/data/scaling.h"

namespace lockstep::data {

// Sample i has the keys of sample i of each data set. If two have the same key, the later one is
// used. All of them draw the same random numbers for a sample, so that an image and its mask are
// cropped in the same way.
class MergedDataset : public CompositeDataset {
 public:
  // Throws ConfigError if there is none or one is null or a stream, and DataError if their sizes
  // differ.
  explicit MergedDataset(std::vector<DatasetPtr> datasets);

  std::int64_t size() const override { return datasets().front()->size(); }
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;
  std::string name_of(std::int64_t index) const override;  // that of the first data set
  // These are those of the last data set that has the key ("targets", for the classes).
  std::vector<std::string> class_names() const override;
  torch::Tensor column(std::string_view key) const override;
  const Scaling& scaling() const override { return scaling_; }
  bool is_here(std::int64_t index) const override;  // in all of them

 private:
  Scaling scaling_;
};

DatasetPtr merge(std::vector<DatasetPtr> datasets);

}  // namespace lockstep::data
