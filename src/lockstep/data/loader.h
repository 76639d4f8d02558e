// Which batches an epoch has: a data set with a batch size, an order and little else.
//
//   Loader loader = {train, {.batch_size = 32, .shuffle = true}};
//
// In a run, `batch_size` is the size of one shard's part of a batch, and there is one shard for
// each worker unless the run's `shards` says otherwise: with 4 workers a step is made of 4 x 32
// samples. Where the step is to have the same samples on any machine, say global_batch_size
// instead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/data/batch_stream.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"

namespace lockstep::data {

struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples in a shard's part of a batch; the last may have fewer
  bool shuffle = false;         // another order each epoch
  bool drop_last = false;       // leave out a last batch that is not full
  std::optional<std::uint64_t> seed = {};       // of the shuffle; default: the run's
  std::shared_ptr<const Sampler> sampler = {};  // the order, instead of shuffle
  std::int64_t prefetch = 0;                    // batches prepared ahead by a thread; 0: none
  // Samples in a batch over all shards, instead of batch_size: shards get equal parts of it, or
  // differ by one sample.
  std::optional<std::int64_t> global_batch_size = {};
};

// What the order of an epoch depends on, and all that it depends on.
struct EpochKey {
  std::uint64_t seed = 42;  // the run's; a seed in LoaderOptions comes before it
  std::int64_t epoch = 1;   // added to the seed
};

struct StreamOptions {
  std::uint64_t seed = 42;       // as in EpochKey
  std::int64_t epoch = 1;        // as in EpochKey
  std::int64_t first_batch = 0;  // to go on inside an epoch; samples before it are not touched
};

// A value: a copy is another description of the same data.
class Loader {
 public:
  // Throws ConfigError where `dataset` is null or an option makes no sense. An empty data set is
  // fine.
  Loader(DatasetPtr dataset, LoaderOptions options = {});

  // Samples in a batch where it is not split: global_batch_size, or else batch_size.
  std::int64_t unsplit_batch_size() const {
    return options_.global_batch_size.value_or(options_.batch_size);
  }

  // Of an epoch that is not split, without what drop_last leaves out.
  std::int64_t batches() const;
  std::int64_t samples() const;

  const DatasetPtr& dataset() const { return dataset_; }
  const LoaderOptions& options() const { return options_; }

  // The samples() indices of an epoch: batch k is the k-th unsplit_batch_size() of them.
  std::vector<std::int64_t> order(const EpochKey& key = {}) const;

  // The same with what drop_last leaves out.
  std::vector<std::int64_t> full_order(const EpochKey& key = {}) const;

  // Throws ConfigError where first_batch is not in [0, batches()].
  BatchStream stream(const StreamOptions& options = {}) const;

 private:
  std::int64_t order_size() const;

  DatasetPtr dataset_;
  LoaderOptions options_;
};

}  // namespace lockstep::data
