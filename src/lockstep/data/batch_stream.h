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

class BatchThreads;

// Consecutive samples of an order.
struct SampleSlice {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

struct StreamPlan {
  std::vector<std::int64_t> order;   // sample indices
  EpochKey key = {};                 // of the samples' random numbers
  std::vector<SampleSlice> batches;  // batch k has the samples of this slice of the order
  // How many batches are prepared ahead: ready or being made, at least one per thread. If threads
  // and prefetch are 0, next() makes the batch itself. A thread is faster only if making a batch
  // takes longer than waking a thread, which takes tens of microseconds. Batches of small tensors
  // in memory do not take that long.
  std::int64_t prefetch = 0;
  // Threads that make batches, each a whole one. LibTorch's operations use one thread in each of
  // them. With 0 and prefetch, there is a single thread, in which LibTorch uses its own threads.
  std::int64_t threads = 0;
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
  // Throws ConfigError if `dataset` is null, prefetch or threads is negative or a slice exceeds the
  // order, and WorkerError if the system refuses a thread.
  BatchStream(DatasetPtr dataset, StreamPlan plan);
  // The batches of a source, of which a thread prepares `prefetch` ahead.
  BatchStream(std::unique_ptr<BatchSource> source, std::int64_t prefetch);
  ~BatchStream();  // ends the threads, even if batches are left
  BatchStream(BatchStream&&) noexcept;
  BatchStream& operator=(BatchStream&&) noexcept;

  // Returns the next batch, or nothing at the end. Throws what the data set threw for this batch,
  // even if threads prepare the batches, and throws it again if it is called again. Warns once per
  // process if threads draw from LibTorch's global generator.
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
  struct GlobalDraws;

  // make(), which looks for global draws in the first batch.
  template <typename Make>
  auto watched(Make make);

  std::optional<Batch>& current() { return current_; }
  void advance();

  std::unique_ptr<BatchSource> source_;
  std::unique_ptr<GlobalDraws> draws_;     // if there are threads
  std::unique_ptr<BatchThreads> threads_;  // after these two, because they use them
  std::optional<Batch> current_;
};

}  // namespace lockstep::data
