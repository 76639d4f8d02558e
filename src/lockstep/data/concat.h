// Several data sets, one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/composite_dataset.h"

namespace lockstep::data {

// The samples of the first data set come first, then those of the second one, and so on. All must
// have the same keys, and tensors of the same types and shapes unless the loader's collate allows
// others. A data set may be there more than once: the random parts of its samples then differ,
// because the random numbers of a sample depend on which of the data sets it is in. Those of the
// first data set have the numbers that they would have without the others.
class ConcatDataset : public CompositeDataset {
 public:
  // Throws ConfigError if there is none, or if one is null or a stream.
  explicit ConcatDataset(std::vector<DatasetPtr> datasets);

  std::int64_t size() const override { return ends_.back(); }
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  // Gathers from each data set in one pass. Throws DataError if their batches do not fit together.
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;
  std::string name_of(std::int64_t index) const override;
  std::vector<std::string> class_names() const override;  // none if the data sets differ in them
  torch::Tensor column(std::string_view key) const override;
  bool is_here(std::int64_t index) const override;
  std::vector<std::int64_t> examples(std::int64_t count) const override;
  const Scaling& scaling() const override;  // throws DataError if the data sets differ in it

 private:
  struct Place {
    std::size_t dataset = 0;
    std::int64_t index = 0;  // in it
  };
  Place place_of(std::int64_t index) const;
  std::int64_t first_of(std::size_t dataset) const;

  std::vector<std::int64_t> ends_;  // index after the last sample of each
};

DatasetPtr concat(std::vector<DatasetPtr> datasets);

}  // namespace lockstep::data
