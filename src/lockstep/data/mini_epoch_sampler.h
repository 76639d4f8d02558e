// Short epochs over a large data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/sampler.h"

namespace lockstep::data {

enum class MiniEpochShuffle {
  kNone,          // the data set in its order, part after part
  kPerEpoch,      // another order each time all samples have been there
  kPerMiniEpoch,  // another order in each mini epoch: its samples are any of all
};

struct MiniEpochOptions {
  std::int64_t mini_epoch_length = 1;  // samples of a mini epoch
  bool drop_last = false;              // leave out the last part if it is not full
  MiniEpochShuffle shuffle = MiniEpochShuffle::kNone;
  std::uint64_t seed = 0;
};

// An epoch of the run is a mini epoch: the next mini_epoch_length samples of the data set. After
// the last part it begins again with the first one. All mini epochs have the same size: a last part
// that is not full is filled with the first samples of the same order. So is a mini epoch that is
// longer than the data set.
class MiniEpochSampler : public Sampler {
 public:
  // Throws ConfigError if the data set is empty or mini_epoch_length is not positive.
  MiniEpochSampler(std::int64_t dataset_size, const MiniEpochOptions& options);

  std::int64_t size() const override { return options_.mini_epoch_length; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;  // epochs count from 1
  std::string settings() const override;

 private:
  std::int64_t dataset_size_;
  MiniEpochOptions options_;
  std::int64_t parts_;  // mini epochs until the first one comes again
};

}  // namespace lockstep::data
