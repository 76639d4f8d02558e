// Some samples of a data set, in another order each epoch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/sampler.h"

namespace lockstep::data {

// The same order as PyTorch's sampler of this name with a generator of the seed seed + epoch. For
// some samples in a fixed order, see Subset.
class SubsetRandomSampler : public Sampler {
 public:
  // Throws ConfigError if an index is negative. An index may be there more than once.
  explicit SubsetRandomSampler(std::vector<std::int64_t> indices,
                               const RandomSamplerOptions& options = {});

  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::string settings() const override;

 private:
  std::vector<std::int64_t> indices_;
  RandomSamplerOptions options_;
};

}  // namespace lockstep::data
