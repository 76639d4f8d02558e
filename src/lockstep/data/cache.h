// Keeps the samples of a data set in memory, so that each is read and decoded only once:
//
//   auto train = transformed(cached(image_folder({.root = "flowers"}), {.memory = 4LL << 30}),
//                            {.transform = …});  // random parts come after the cache
//
// Make it before the run: then the workers of this host share it, because they are forked. Workers
// that a launcher starts have one each.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "lockstep/data/composite_dataset.h"
#include "lockstep/data/sample_bytes.h"
#include "lockstep/process/shared_memory.h"

namespace lockstep::data {

struct CacheOptions {
  // Bytes for samples, at most. Memory is taken as samples come in. Besides, a sample costs 8 bytes
  // even if it is not in the cache.
  std::int64_t memory = std::int64_t{1} << 30;
};

// Samples that come first stay, until the memory is full. Others are read each time. There are no
// locks: a worker that ends while it writes a sample leaves others unharmed, and they read this
// sample themselves.
class Cached : public WrapperDataset {
 public:
  // As cached().
  Cached(DatasetPtr dataset, const CacheOptions& options);

  // The same in all epochs.
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override;
  Batch gather_in_epoch(std::span<const std::int64_t> indices, const EpochKey& key,
                        Batch reuse) const override;

  struct Counts {
    std::int64_t samples = 0;  // in the cache
    std::int64_t bytes = 0;    // that they take
    std::int64_t refused = 0;  // samples that did not fit
    std::int64_t hits = 0;     // reads from the cache, by all workers
    std::int64_t misses = 0;   // reads from the data set
  };
  Counts counts() const;

  // "cache: 45 of 50 samples in 1.2 MB of 2.0 MB; 90 hits, 60 misses"
  std::string describe() const;

 private:
  struct Header;
  using Slot = std::atomic<std::uint64_t>;

  Header& header() const;
  Slot& slot(std::int64_t index) const;
  std::optional<Batch> find(std::int64_t index, SampleMemory memory) const;
  Batch read_and_keep(std::int64_t index) const;
  void keep(std::int64_t index, const Batch& sample) const;
  std::optional<std::uint64_t> allocate(std::size_t bytes) const;

  std::int64_t capacity_;         // bytes
  process::SharedMemory memory_;  // header, one slot per sample, samples
};

// Throws ConfigError if `dataset` is null, random or a stream, or if the memory is not positive or
// more than the host has.
std::shared_ptr<const Cached> cached(DatasetPtr dataset, const CacheOptions& options = {});

}  // namespace lockstep::data
