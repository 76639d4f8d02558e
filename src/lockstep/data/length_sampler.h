// Batches of samples of similar lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/sampler.h"

namespace lockstep::data {

struct LengthSamplerOptions {
  std::int64_t batch_size = 1;  // of the loader, or of all its shards together
  // Samples are sorted by length within groups of so many batches. More of them need less padding,
  // fewer give batches that are more random.
  std::int64_t batches_per_pool = 100;
  std::uint64_t seed = 0;
};

// For sequences that are padded to the longest one of their batch (data::pad). In each epoch all
// samples are shuffled, sorted by length within pools, cut into batches, and the batches are
// shuffled. A last batch that is not full comes last.
class LengthSampler : public Sampler {
 public:
  // lengths[i] is the length of sample i (lengths_of). Throws ConfigError if an option is not
  // positive.
  LengthSampler(std::vector<std::int64_t> lengths, const LengthSamplerOptions& options);

  std::int64_t size() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::string settings() const override;
  std::optional<std::int64_t> batch_size() const override { return options_.batch_size; }

 private:
  std::vector<std::int64_t> lengths_;
  LengthSamplerOptions options_;
};

}  // namespace lockstep::data
