// Samples that are drawn with given weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/sampler.h"

namespace lockstep::data {

struct WeightedRandomOptions {
  std::optional<std::int64_t> samples = {};  // of an epoch; default: as many as there are weights
  bool replacement = true;                   // a sample may come several times in an epoch
  std::uint64_t seed = 0;
};

// weights[i] says how likely sample i is. Weights need not add up to 1. The draws are not those of
// PyTorch's sampler of this name, which limits the number of weights and whose draws depend on how
// LibTorch was built.
class WeightedRandomSampler : public Sampler {
 public:
  // Throws ConfigError if a weight is negative or not finite, if all are zero, or if without
  // replacement fewer than `samples` weights are positive.
  explicit WeightedRandomSampler(std::vector<double> weights,
                                 const WeightedRandomOptions& options = {});

  std::int64_t size() const override { return size_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::string settings() const override;

 private:
  std::vector<std::int64_t> with_replacement(std::int64_t epoch) const;
  std::vector<std::int64_t> without_replacement(std::int64_t epoch) const;

  std::vector<double> weights_;
  WeightedRandomOptions options_;
  std::int64_t size_;
};

// The weight of each sample from the weights of the classes 0, 1, …: class_weights[label].
// Throws ConfigError if a label has no weight.
std::vector<double> weights_by_class(const std::vector<std::int64_t>& labels,
                                     const std::vector<double>& class_weights);

}  // namespace lockstep::data
