// In which order an epoch visits its samples. A sampler is immutable: the order is a pure function
// of what it was made with and the epoch.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data {

// torch.randperm(n, generator=torch.Generator().manual_seed(seed)), to the last index.
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed);

class Sampler {
 public:
  virtual ~Sampler() = default;

  // Samples in an epoch.
  virtual std::int64_t size() const = 0;

  // size() sample indices.
  virtual std::vector<std::int64_t> indices(std::int64_t epoch) const = 0;
};

// 0, 1, 2, ...
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t dataset_size);

  std::int64_t size() const override { return dataset_size_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;

 private:
  std::int64_t dataset_size_;
};

struct RandomSamplerOptions {
  std::uint64_t seed = 0;  // the epoch is added to it
};

// permutation(n, seed + epoch): what DistributedSampler gives to a single replica.
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(std::int64_t dataset_size, const RandomSamplerOptions& options = {});

  std::int64_t size() const override { return dataset_size_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;

 private:
  std::int64_t dataset_size_;
  RandomSamplerOptions options_;
};

struct DistributedSamplerOptions {
  std::int64_t num_replicas = 1;  // how many share the data set
  std::int64_t rank = 0;          // which of them this is
  bool shuffle = true;            // another order each epoch
  std::uint64_t seed = 0;         // the same on every rank; the epoch is added to it
  bool drop_last = false;  // drop the tail that not all can have, instead of repeating samples
};

// torch.utils.data.DistributedSampler, to the last index: its permutation, its padding with
// repeated samples. For those who compare with PyTorch; a Loader needs no padding.
class DistributedSampler : public Sampler {
 public:
  // Throws ConfigError where the options make no sense.
  DistributedSampler(std::int64_t dataset_size, const DistributedSamplerOptions& options);

  std::int64_t size() const override { return samples_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;

 private:
  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  std::int64_t samples_;  // of one replica
};

}  // namespace lockstep::data
