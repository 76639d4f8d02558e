// The order of the samples in an epoch. A sampler is immutable: the order is a pure function of the
// constructor's arguments and the epoch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

// The same indices as torch.randperm(n, generator=torch.Generator().manual_seed(seed)).
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed);

// One of the `count` equal parts that a run splits every batch into.
struct ShardIndex {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

class Sampler {
 public:
  virtual ~Sampler() = default;

  // The number of samples in an epoch.
  virtual std::int64_t size() const = 0;

  // size() sample indices.
  virtual std::vector<std::int64_t> indices(std::int64_t epoch) const = 0;

  // For a sampler that divides the data set among the shards of a run by itself: the sampler of one
  // shard. All shards must have the same size(). Most samplers return nothing: then the run splits
  // their order, and a shard is a slice of a batch.
  virtual std::shared_ptr<const Sampler> of_shard(const ShardIndex& shard) const;

  // The settings that decide the order, as a text that is the same on every rank. The ranks of a
  // run compare it. If it is empty, they compare a hash of the order of the first epoch.
  virtual std::string settings() const;

  // For a sampler that makes whole batches: so many consecutive indices belong together. The
  // batches of a loader must have this size, or shards of one size that add up to it.
  virtual std::optional<std::int64_t> batch_size() const;
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

// permutation(n, seed + epoch). A DistributedSampler with one replica gives the same.
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
  // How many replicas share the data set, and which of them this is. Leave both out in a run, which
  // sets them.
  std::optional<std::int64_t> num_replicas = {};
  std::optional<std::int64_t> rank = {};
  bool shuffle = true;     // another order each epoch
  std::uint64_t seed = 0;  // the same on every rank; the epoch is added to it
  bool drop_last = false;  // drop samples at the end instead of repeating some
};

// The same indices as torch.utils.data.DistributedSampler, with its permutation and its padding
// with repeated samples. Use it to compare with PyTorch. A Loader needs no padding. In a run, shard
// s of every batch is from replica s. Outside of a run, the defaults are one replica and rank 0.
class DistributedSampler : public Sampler {
 public:
  // Throws ConfigError if the options are wrong.
  explicit DistributedSampler(std::int64_t dataset_size,
                              const DistributedSamplerOptions& options = {});

  using ReplicaIndex = ShardIndex;
  // The same sampler for one of `count` replicas. Throws ConfigError if its options have another
  // number of replicas.
  DistributedSampler of_replica(const ReplicaIndex& replica) const;

  std::int64_t dataset_size() const { return dataset_size_; }
  const DistributedSamplerOptions& options() const { return options_; }

  std::int64_t size() const override { return samples_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override;
  std::shared_ptr<const Sampler> of_shard(const ShardIndex& shard) const override;
  // Without the rank: each rank may have made the sampler for itself, and the run decides which
  // shards a rank has.
  std::string settings() const override;

 private:
  std::int64_t dataset_size_;
  DistributedSamplerOptions options_;
  std::int64_t samples_;  // of one replica
};

}  // namespace lockstep::data
