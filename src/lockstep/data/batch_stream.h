// Batches, one after the other:
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
#include "lockstep/data/dataset.h"

namespace lockstep::data {

// A part of an order.
struct SampleSlice {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

struct StreamPlan {
  std::vector<std::int64_t> order;   // sample indices
  std::vector<SampleSlice> batches;  // batch k has the samples of this slice of the order
  // Batches prepared ahead by a thread; 0: by next() itself. Pays where a batch takes longer to
  // make than a thread to wake, tens of microseconds; small tensors in memory do not.
  std::int64_t prefetch = 0;
};

// Movable; one thread may use it. The memory of a batch is used again once all that hold its
// tensors, or views of them, have let go: an epoch in its stride allocates nothing. Nobody's batch
// is ever written over.
class BatchStream {
 public:
  // Throws ConfigError where `dataset` is null or a slice reaches beyond the order.
  BatchStream(DatasetPtr dataset, StreamPlan plan);
  ~BatchStream();  // ends the thread, also half way
  BatchStream(BatchStream&&) noexcept;
  BatchStream& operator=(BatchStream&&) noexcept;

  // The next batch, or nothing at the end. What the data set throws comes out here, also where a
  // thread prepares, and comes again if this is called again.
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

  // Starts with the batch that next() would give; a stream is walked through once.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  class Source;
  class Prefetcher;

  std::optional<Batch>& current() { return current_; }
  void advance();

  std::unique_ptr<Source> source_;
  std::unique_ptr<Prefetcher> prefetcher_;  // after source_: its thread uses it
  std::optional<Batch> current_;
};

}  // namespace lockstep::data
