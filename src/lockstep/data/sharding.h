// How an epoch is cut: global batch k is a slice of the order, shard s a slice of that. The order
// and the cuts depend on the seed, the epoch and the number of shards, never on who works on which.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"

namespace lockstep::data {

// How a loader's full batch is split into shards: the first `larger` of them have one sample more.
struct BatchSplit {
  std::int64_t global = 1;  // samples in a batch, over all shards
  std::int64_t shards = 1;
  std::int64_t least = 1;   // samples in a shard that is not larger
  std::int64_t larger = 0;  // shards that have one more

  std::int64_t largest() const { return least + (larger > 0 ? 1 : 0); }
  std::int64_t first_of(std::int64_t shard) const;  // its first sample in the batch
  std::int64_t size_of(std::int64_t shard) const { return least + (shard < larger ? 1 : 0); }
};

// Throws ConfigError where a global_batch_size is smaller than the number of shards, and where a
// DistributedSampler's replicas would get parts of different sizes.
BatchSplit batch_split(const Loader& loader, std::int64_t shards);

// "64 = 2 shards x 32", "100 = 3 shards x 33 or 34", "32"
std::string describe(const BatchSplit& split);

// Global batches and samples of a loader's epoch.
struct EpochSize {
  std::int64_t batches = 0;
  std::int64_t samples = 0;
};
EpochSize epoch_size(const Loader& loader, std::int64_t shards);

class ShardedEpoch {
 public:
  // Throws ConfigError where a DistributedSampler is for another number of replicas.
  ShardedEpoch(const Loader& loader, const EpochKey& key, std::int64_t shards);

  std::int64_t batches() const { return size_.batches; }

  // Shard s of global batch k: with batch_size, what one process would have as batch k * shards +
  // s. At the end of the epoch it may have fewer samples, or none. With a DistributedSampler,
  // replica s's batch k.
  SampleSlice slice(std::int64_t batch, std::int64_t shard) const;

  // Samples of global batch k.
  std::int64_t samples(std::int64_t batch) const;

  // The batches of shards [first_shard, first_shard + count), one after the other, from global
  // batch `first_batch` on; empty ones are left out.
  struct Worker {
    std::int64_t first_shard = 0;
    std::int64_t count = 1;
    std::int64_t first_batch = 0;
  };
  BatchStream stream(const Worker& worker) const;

 private:
  Loader loader_;
  BatchSplit split_;
  EpochSize size_;
  std::vector<std::int64_t> order_;
  std::int64_t per_replica_ = 0;  // samples, with a DistributedSampler
};

}  // namespace lockstep::data
