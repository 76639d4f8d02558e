// Data of which every host has only a part:
//
//   // On host 0 and on host 1, each with its own files:
//   auto train = ls::data::partitioned({.parts = 2, .here = {{host, my_part}}});
//   ls::data::Loader loader = {train, {.batch_size = 32, .sampler = train->sampler()}};
//
// The run gives each shard samples of one part only. Shards [0, shards / parts) read part 0, the
// next ones part 1, and so on, so the workers of host h have the shards of part h if all hosts have
// equally many workers. Which samples a shard reads depends on the parts, the seed, the epoch and
// the number of shards: a run on one host that has all parts ends with the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/concat.h"
#include "lockstep/data/sampler.h"

namespace lockstep::data {

struct PartitionOptions {
  std::int64_t parts = 1;                        // of the data; the same on every rank
  std::map<std::int64_t, DatasetPtr> here = {};  // those that this process can read, by number
  // How many samples of each part are used. Parts must have equally many, so that all shards have
  // equally many batches. Default: all of a part. Set it to the size of the smallest part if the
  // parts differ.
  std::optional<std::int64_t> samples = {};
};

struct PartitionSamplerOptions {
  bool shuffle = true;  // the samples of each part, in another order each epoch
  std::uint64_t seed = 0;
};

// Sample i of part p is sample p * samples + i. Random numbers of a sample depend on the part and
// its place there. A sample of a part that is not here throws DataError.
class PartitionedDataset : public ConcatDataset {
 public:
  // Throws ConfigError if there is no part here or a number is out of range, and DataError if a
  // part has fewer samples than `samples`, or if parts differ and `samples` is not set. Ranks
  // compare the sizes when the run begins.
  explicit PartitionedDataset(const PartitionOptions& options);

  std::int64_t part_count() const { return part_count_; }
  std::int64_t samples_of_part() const { return samples_; }

  // The order for a loader. The number of shards must be a multiple of the parts. If several shards
  // read one part and its samples cannot be divided equally, an epoch leaves out the last ones.
  std::shared_ptr<const Sampler> sampler(const PartitionSamplerOptions& options = {}) const;

 private:
  std::int64_t part_count_;
  std::int64_t samples_;
};

std::shared_ptr<const PartitionedDataset> partitioned(const PartitionOptions& options);

}  // namespace lockstep::data
