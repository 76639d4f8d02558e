// How an epoch is split: global batch k is a slice of the order, and shard s is a slice of the
// batch. The order and the slices depend on the seed, the epoch and the number of shards, but not
// on which worker has which shard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"

namespace lockstep::data {

// How a full batch of a loader is split. The first `larger` shards have one sample more.
struct BatchSplit {
  std::int64_t global = 1;  // samples in a batch, over all shards
  std::int64_t shards = 1;
  std::int64_t least = 1;   // samples in each of the other shards
  std::int64_t larger = 0;  // number of shards that have one more

  std::int64_t largest() const { return least + (larger > 0 ? 1 : 0); }
  std::int64_t first_of(std::int64_t shard) const;  // its first sample in the batch
  std::int64_t size_of(std::int64_t shard) const { return least + (shard < larger ? 1 : 0); }
};

// Throws ConfigError if global_batch_size is smaller than the number of shards, or if a sampler
// that divides the data set by itself (Sampler::of_shard), or a stream, would get parts of
// different sizes, or if a sampler makes whole batches (Sampler::batch_size) and neither each shard
// nor all of them together get one.
BatchSplit batch_split(const Loader& loader, std::int64_t shards);

// "64 = 2 shards x 32", "100 = 3 shards x 33 or 34", "32"
std::string describe(const BatchSplit& split);

// The number of global batches and samples in an epoch of a loader.
struct EpochSize {
  std::int64_t batches = 0;
  std::int64_t samples = 0;
};
EpochSize epoch_size(const Loader& loader, std::int64_t shards);

class ShardedEpoch {
 public:
  // Throws ConfigError if a DistributedSampler was made for another number of replicas.
  ShardedEpoch(const Loader& loader, const EpochKey& key, std::int64_t shards);

  std::int64_t batches() const { return size_.batches; }

  // Shard s of global batch k. With batch_size, these are the samples that one process would have
  // as batch k * shards + s. At the end of the epoch a shard may have fewer samples, or none. If
  // the sampler has one sampler for each shard, it is batch k of that of shard s. If the data set
  // is a stream, samples are counted in what shard s reads.
  SampleSlice slice(std::int64_t batch, std::int64_t shard) const;

  // The number of samples in global batch k.
  std::int64_t samples(std::int64_t batch) const;

  // The parts of shards [first_shard, first_shard + count), one after the other, from global batch
  // `first_batch` on. Empty parts are left out.
  struct Worker {
    std::int64_t first_shard = 0;
    std::int64_t count = 1;
    std::int64_t first_batch = 0;
  };
  BatchStream stream(const Worker& worker) const;

 private:
  Loader loader_;
  EpochKey key_;  // of the samples' random numbers
  BatchSplit split_;
  EpochSize size_;
  std::vector<std::int64_t> order_;
  std::optional<std::int64_t> per_shard_;  // samples of each, if the sampler divides the data set
};

}  // namespace lockstep::data
