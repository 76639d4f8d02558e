// In which order an epoch visits its samples. A sampler is immutable: the order is a pure function
// of what it was made with and the epoch.
#pragma once

#include <cstdint>
#include <optional>
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
  // How many share the data set, and which of them this is. A run knows both: leave them out there.
  std::optional<std::int64_t> num_replicas = {};
  std::optional<std::int64_t> rank = {};
  bool shuffle = true;     // another order each epoch
  std::uint64_t seed = 0;  // the same on every rank; the epoch is added to it
  bool drop_last = false;  // drop the tail that not all can have, instead of repeating samples
};

// torch.utils.data.DistributedSampler, to the last index: its permutation, its padding with
// repeated samples. For those who compare with PyTorch; a Loader needs no padding. In a run, shard
// s of every batch is of replica s; without one, what is left out is one replica, the first.
class DistributedSampler : public Sampler {
 public:
  // Throws ConfigError where the options make no sense.
  explicit DistributedSampler(std::int64_t dataset_size,
                              const DistributedSamplerOptions& options = {});

  struct ReplicaIndex {
    std::int64_t index = 0;
    std::int64_t count = 1;
  };
  // The same for one of `count` replicas. Throws ConfigError where it was made for another number.
  DistributedSampler of_replica(const ReplicaIndex& replica) const;

  std::int64_t dataset_size() const { return dataset_size_; }
  const DistributedSamplerOptions& options() const { return options_; }

  std::int64_t size() const override { return samples_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;

 private:
  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  std::int64_t samples_;  // of one replica
};

}  // namespace lockstep::data
