// Says which batches an epoch has: a data set with a batch size, an order and a few other options.
//
//   Loader loader = {train, {.batch_size = 32, .shuffle = true}};
//
// In a run, `batch_size` is the size of one shard's part of a batch. There is one shard per worker
// unless the run's `shards` says otherwise: with 4 workers a step has 4 x 32 samples. If a step
// must have the same samples on any machine, set global_batch_size instead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/data/batch_stream.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/iterable_dataset.h"
#include "lockstep/data/sampler.h"

namespace lockstep::data {

struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples in a shard's part of a batch; the last may have fewer
  bool shuffle = false;         // a different order in each epoch
  bool drop_last = false;       // leave out a last batch that is not full
  // Of the shuffle and of all random numbers of samples and batches. A sampler has a seed of its
  // own. Default: the seed of the run.
  std::optional<std::uint64_t> seed = {};
  std::shared_ptr<const Sampler> sampler = {};  // the order, instead of shuffle
  std::int64_t prefetch = 0;  // batches that are prepared ahead; 0: one per thread
  // Threads of each worker that read, change and gather samples, each a whole batch. 0: the thread
  // that trains does it, or with prefetch a single other one. More make decoding and augmentation
  // faster, and tensors in memory slower. Samples have the same bits for any number. A stream has
  // no threads: it is read in its order, by one thread. Set prefetch there.
  std::int64_t threads = 0;
  // Samples in a batch over all shards, instead of batch_size. Shards get equal parts of it, or
  // parts that differ by one sample.
  std::optional<std::int64_t> global_batch_size = {};
  // Makes a batch of samples: stack(), pad({…}), lists({…}) or a function (data/collate.h). By
  // default the data set does it, and a data set stacks samples unless it overrides gather().
  Collate collate = {};
  // Changes each shard's part of a batch after it is made: Mixup, CutMix, LabelSmoothing
  // (transform/mix.h) or a function. Default: none.
  BatchTransform batch_transform = {};
  // At most this many batches of an epoch, over all shards, for a quick look. Default: all. A
  // stream whose number of samples is not known has exactly so many; without it, such a stream can
  // only be trained on by steps (steps_per_epoch or num_steps of the run).
  std::optional<std::int64_t> max_batches = {};
};

struct StreamOptions {
  std::uint64_t seed = 42;       // as in EpochKey
  std::int64_t epoch = 1;        // as in EpochKey
  std::int64_t first_batch = 0;  // to resume inside an epoch; earlier samples are not read
  std::int64_t step = 1;         // only every step-th batch from first_batch on
};

// A Loader is a value: a copy uses the same data.
class Loader {
 public:
  // Throws ConfigError if `dataset` is null or an option is wrong. The data set may be empty. If it
  // is an IterableDataset, there are no shuffle, sampler and threads: it is read in its own order.
  Loader(DatasetPtr dataset, LoaderOptions options = {});

  // Samples in a batch that is not split into shards: global_batch_size, or else batch_size.
  std::int64_t unsplit_batch_size() const {
    return options_.global_batch_size.value_or(options_.batch_size);
  }

  // Whether it is known how many batches an epoch has. It is not for a stream that does not tell
  // its number of samples, without max_batches.
  bool has_length() const { return !iterable_ || iterable_->samples() || options_.max_batches; }

  // Batches and samples of an epoch that is not split into shards, without those that drop_last
  // leaves out. Throws ConfigError if the loader has no length.
  std::int64_t batches() const;
  std::int64_t samples() const;

  const DatasetPtr& dataset() const { return dataset_; }
  // The data set, if it is a stream; else null.
  const std::shared_ptr<const IterableDataset>& iterable() const { return iterable_; }
  const LoaderOptions& options() const { return options_; }
  // The collate of the options, followed by their batch_transform.
  const Collate& collate() const { return collate_; }

  // The samples() indices of an epoch. Each unsplit_batch_size() of them are one batch. Throws
  // ConfigError if the data set is a stream, which has no indices.
  std::vector<std::int64_t> order(const EpochKey& key = {}) const;

  // The same, including the samples that drop_last leaves out.
  std::vector<std::int64_t> full_order(const EpochKey& key = {}) const;

  // The key of the samples' random numbers in an epoch: with the seed of the options, if they have
  // one.
  EpochKey sample_key(const EpochKey& key) const;

  // Throws ConfigError if first_batch is not in [0, batches()], or step is not positive.
  BatchStream stream(const StreamOptions& options = {}) const;

 private:
  std::int64_t order_size() const;

  DatasetPtr dataset_;
  std::shared_ptr<const IterableDataset> iterable_;
  LoaderOptions options_;
  Collate collate_;
};

}  // namespace lockstep::data
