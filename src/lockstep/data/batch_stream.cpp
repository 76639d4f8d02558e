#include "lockstep/data/batch_stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/data/batch_pool.h"

namespace lockstep::data {

// Gathers the batches from a data set.
class BatchStream::Source : public BatchSource {
 public:
  Source(DatasetPtr dataset, StreamPlan plan)
      : dataset_(std::move(dataset)),
        plan_(std::move(plan)),
        // The pool has room for the prepared batches, the current one, the one before it, and one
        // that is being filled.
        pool_(static_cast<std::size_t>(plan_.prefetch) + 3) {}

  std::optional<Batch> next() override {
    if (at_ == plan_.batches.size()) return std::nullopt;
    const torch::NoGradGuard no_grad;
    const SampleSlice& slice = plan_.batches[at_];
    const auto indices =
        std::span<const std::int64_t>(plan_.order)
            .subspan(static_cast<std::size_t>(slice.first), static_cast<std::size_t>(slice.count));
    Batch batch = make_batch(*dataset_, plan_.collate,
                             {.indices = indices, .key = plan_.key, .reuse = pool_.take()});
    ++at_;
    pool_.lend(batch);
    return batch;
  }

 private:
  DatasetPtr dataset_;
  StreamPlan plan_;
  BatchPool pool_;
  std::size_t at_ = 0;
};

// Prepares batches ahead in a separate thread.
class BatchStream::Prefetcher {
 public:
  Prefetcher(BatchSource& source, std::size_t ahead)
      : ahead_(ahead),
        thread_([this, &source](const std::stop_token& stop) { run(source, stop); }) {}

  std::optional<Batch> next() {
    std::unique_lock lock(mutex_);
    ready_changed_.wait(lock, [this] { return !ready_.empty() || ended_; });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    ready_changed_.notify_all();
    return batch;
  }

 private:
  void run(BatchSource& source, const std::stop_token& stop) {
    std::exception_ptr error;
    try {
      while (wait_for_room(stop)) {
        std::optional<Batch> batch = source.next();
        if (!batch) break;
        std::lock_guard lock(mutex_);
        ready_.push_back(std::move(*batch));
        ready_changed_.notify_all();
      }
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    error_ = std::move(error);
    ended_ = true;
    ready_changed_.notify_all();
  }

  // Returns false if the stream is being destroyed.
  bool wait_for_room(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    return ready_changed_.wait(lock, stop, [this] { return ready_.size() < ahead_; }) &&
           !stop.stop_requested();
  }

  const std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable_any ready_changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;
  bool ended_ = false;
  std::jthread thread_;  // last, so that it ends before the members that it uses
};

BatchStream::BatchStream(DatasetPtr dataset, StreamPlan plan) {
  if (!dataset) throw ConfigError("BatchStream: expected a data set, got a null pointer");
  if (plan.prefetch < 0) {
    throw ConfigError("BatchStream: prefetch: expected 0 or more batches, got {}", plan.prefetch);
  }
  const auto samples = static_cast<std::int64_t>(plan.order.size());
  for (const SampleSlice& slice : plan.batches) {
    if (slice.first < 0 || slice.count < 0 || slice.first > samples - slice.count) {
      throw ConfigError("BatchStream: {} samples from {} on reach beyond the {} of the order",
                        slice.count, slice.first, samples);
    }
  }
  const auto ahead = static_cast<std::size_t>(plan.prefetch);
  source_ = std::make_unique<Source>(std::move(dataset), std::move(plan));
  if (ahead > 0) prefetcher_ = std::make_unique<Prefetcher>(*source_, ahead);
}

BatchStream::BatchStream(std::unique_ptr<BatchSource> source, std::int64_t prefetch)
    : source_(std::move(source)) {
  if (prefetch > 0) {
    prefetcher_ = std::make_unique<Prefetcher>(*source_, static_cast<std::size_t>(prefetch));
  }
}

BatchStream::~BatchStream() = default;
BatchStream::BatchStream(BatchStream&&) noexcept = default;

BatchStream& BatchStream::operator=(BatchStream&& other) noexcept {
  // The old thread must end first, because it still uses the old source.
  prefetcher_ = std::move(other.prefetcher_);
  source_ = std::move(other.source_);
  current_ = std::move(other.current_);
  return *this;
}

std::optional<Batch> BatchStream::next() {
  return prefetcher_ ? prefetcher_->next() : source_->next();
}

BatchStream::Iterator BatchStream::begin() {
  advance();
  return Iterator(this);
}

void BatchStream::advance() {
  // Released before next() is called, so that its memory can be used again.
  current_.reset();
  current_ = next();
}

}  // namespace lockstep::data
