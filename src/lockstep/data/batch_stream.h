// Gives batches, one after the other:
//
//   for (ls::Batch& batch : loader.stream({.epoch = 1})) { ... }
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Consecutive samples of an order.
struct SampleSlice {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

struct StreamPlan {
  std::vector<std::int64_t> order;   // sample indices
  EpochKey key = {};                 // of the samples' random numbers
  std::vector<SampleSlice> batches;  // batch k has the samples of this slice of the order
  // How many batches a thread prepares ahead. With 0, next() makes the batch itself. A thread is
  // faster only if making a batch takes longer than waking a thread, which takes tens of
  // microseconds. Batches of small tensors in memory do not take that long.
  std::int64_t prefetch = 0;
  Collate collate = {};  // makes a batch of samples; default: the data set's gather()
};

// Makes batches, one after the other, in the thread that calls next().
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::optional<Batch> next() = 0;  // nothing at the end
};

// Movable. Only one thread may use it. The memory of a batch is used again when its tensors and all
// views of them are released, so that after the first batches an epoch allocates nothing. A batch
// that is still held is never overwritten.
class BatchStream {
 public:
  // Throws ConfigError if `dataset` is null, prefetch is negative or a slice exceeds the order.
  BatchStream(DatasetPtr dataset, StreamPlan plan);
  // The batches of a source, of which a thread prepares `prefetch` ahead.
  BatchStream(std::unique_ptr<BatchSource> source, std::int64_t prefetch);
  ~BatchStream();  // ends the thread, even if batches are left
  BatchStream(BatchStream&&) noexcept;
  BatchStream& operator=(BatchStream&&) noexcept;

  // Returns the next batch, or nothing at the end. Throws what the data set threw, even if a thread
  // prepares the batches, and throws it again if it is called again.
  std::optional<Batch> next();

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;

    Iterator() = default;
    explicit Iterator(BatchStream* stream) : stream_(stream) {}

    Batch& operator*() const { return *stream_->current(); }
    Iterator& operator++() {
      stream_->advance();
      return *this;
    }
    void operator++(int) { stream_->advance(); }
    bool operator==(std::default_sentinel_t) const { return !stream_->current(); }

   private:
    BatchStream* stream_ = nullptr;
  };

  // Starts with the batch that next() would return. A stream can be iterated only once.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  class Source;
  class Prefetcher;

  std::optional<Batch>& current() { return current_; }
  void advance();

  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<Prefetcher> prefetcher_;  // after source_, because its thread uses source_
  std::optional<Batch> current_;
};

}  // namespace lockstep::data
