// Data that can only be read from the beginning to the end: a file that is too large for an index,
// a simulation, a connection. Derive from IterableDataset to make your own:
//
//   class Walks : public ls::data::IterableDataset {
//     struct Source : ls::data::SampleSource {
//       explicit Source(const ls::data::StreamPart& part) : random(part.key, part.shard.index) {}
//       std::optional<ls::Batch> next() override {
//         return ls::Batch{{"features", torch::randn({8}, random.generator())}};
//       }
//       ls::data::SampleRandom random;
//     };
//     std::unique_ptr<ls::data::SampleSource> open(const ls::data::StreamPart& part) const override
//     {
//       return std::make_unique<Source>(part);
//     }
//   };
//
//   ls::data::Loader loader = {std::make_shared<Walks>(), {.batch_size = 32, .max_batches = 100}};
//
// The number of batches of an epoch must be known before it begins, so that all workers make
// equally many steps without asking each other. It follows from samples(), if the stream can tell
// them, or it is the loader's max_batches. Training with steps_per_epoch or num_steps needs
// neither.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lockstep/data/batch_stream.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sampler.h"

namespace lockstep::data {

// The part of a stream that one shard reads in an epoch.
struct StreamPart {
  EpochKey key = {};  // of all random choices
  // A shard has samples that no other shard has. Which ones must depend only on this and the key,
  // and not on the process that reads them.
  ShardIndex shard = {};
  // How often this shard came to the end of the stream in this epoch. It is 0 if samples() is
  // known.
  std::int64_t pass = 0;
};

// Reads one part of a stream. Only one thread uses it.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // The next sample; its tensors have no batch dimension. Nothing at the end.
  virtual std::optional<Batch> next() = 0;

  // Leaves out `count` samples, and returns how many there were: fewer at the end. By default it
  // reads them. Override it if they can be left out faster: a run that resumes inside an epoch
  // leaves out what was done before.
  virtual std::int64_t skip(std::int64_t count);
};

class IterableDataset : public Dataset {
 public:
  // Called once per epoch for each shard, in the process that trains on the shard, and before the
  // run for a look at the first samples.
  virtual std::unique_ptr<SampleSource> open(const StreamPart& part) const = 0;

  // The number of samples in an epoch, over all shards, if it is known. Shards must then have
  // equally many samples, and the first ones one more if the number is not a multiple of the
  // shards, as share_of() divides them. By default it is not known: the loader needs max_batches or
  // the run steps_per_epoch, and a shard that comes to the end of the stream earlier opens it again
  // (StreamPart::pass).
  virtual std::optional<std::int64_t> samples() const { return std::nullopt; }

  // As a Dataset: samples are counted as one shard reads them in the first epoch. To read sample i
  // is to read all before it. Throws ConfigError if the number of samples is not known.
  std::int64_t size() const final;
  Batch sample(std::int64_t index) const final;
};

// Every shard.count-th sample of a source, from shard.index on: for a stream that cannot be divided
// in another way. Each shard then reads all of it. Throws ConfigError if `source` is null.
std::unique_ptr<SampleSource> share_of(std::unique_ptr<SampleSource> source,
                                       const ShardIndex& shard);

// The samples of a batch that one shard has, counted in the shard. `samples` is that of the stream.
SampleSlice slice_of_stream(std::optional<std::int64_t> samples, const ShardIndex& shard,
                            const SampleSlice& full);

struct StreamReading {
  std::shared_ptr<const IterableDataset> stream;
  EpochKey key = {};
  std::int64_t shards = 1;       // of the run
  std::int64_t first_shard = 0;  // of those that are read, one after the other in each batch
  std::int64_t count = 1;        // of those that are read
  std::int64_t batch_size = 1;   // of a shard
  std::int64_t batches = 0;      // of the epoch
  std::int64_t first_batch = 0;
  std::int64_t step = 1;  // only every step-th batch from first_batch on
  std::int64_t prefetch = 0;
  Collate collate = {};  // by default samples are stacked; followed by its batch transform
};

// The parts of batches that these shards have. Empty parts are left out. Its next() throws
// DataError, which names the shard, if a stream is empty or has fewer samples than samples() says.
// An error of the stream or the collate names the stream's class, the shard and the sample.
BatchStream read_stream(StreamReading reading);

}  // namespace lockstep::data
