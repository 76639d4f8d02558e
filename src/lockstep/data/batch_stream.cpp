#include "lockstep/data/batch_stream.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/batch_pool.h"
#include "lockstep/data/batch_threads.h"
#include "lockstep/data/global_draws.h"

namespace lockstep::data {
namespace {

// Batches that are ready or being made at the same time.
std::size_t batches_ahead(const StreamPlan& plan) {
  return static_cast<std::size_t>(std::max(plan.prefetch, plan.threads));
}

}  // namespace

// Gathers the batches from a data set, in the thread that asks for them.
class BatchStream::Source : public BatchSource {
 public:
  Source(DatasetPtr dataset, StreamPlan plan)
      : dataset_(std::move(dataset)),
        plan_(std::move(plan)),
        // The pool has room for the prepared batches, the current one, the one before it, and one
        // that is being filled.
        pool_(batches_ahead(plan_) + 3) {}

  std::optional<Batch> next() override {
    if (at_ == plan_.batches.size()) return std::nullopt;
    Batch batch = make(at_);
    ++at_;
    return batch;
  }

  // Several threads may call it at once.
  Batch make(std::size_t number) {
    const torch::NoGradGuard no_grad;
    const SampleSlice& slice = plan_.batches[number];
    const auto indices =
        std::span<const std::int64_t>(plan_.order)
            .subspan(static_cast<std::size_t>(slice.first), static_cast<std::size_t>(slice.count));
    Batch batch = make_batch(*dataset_, plan_.collate,
                             {.indices = indices, .key = plan_.key, .reuse = pool_.take()});
    pool_.lend(batch);
    return batch;
  }

 private:
  DatasetPtr dataset_;
  StreamPlan plan_;
  BatchPool pool_;
  std::size_t at_ = 0;
};

// Whether a thread drew from LibTorch's global generator.
struct BatchStream::GlobalDraws {
  explicit GlobalDraws(const char* warned) : warning(warned) {}

  const char* const warning;
  std::atomic<bool> found = false;
};

// The first batch shows whether the numbers of LibTorch's global generator are used, which the main
// thread draws from at the same time.
template <typename Make>
auto BatchStream::watched(Make make) {
  return [make, draws = draws_.get()](std::size_t number) -> std::optional<Batch> {
    if (number > 0) return make(number);
    const GlobalDrawProbe probe;
    std::optional<Batch> batch = make(number);
    draws->found = probe.drew();
    return batch;
  };
}

BatchStream::BatchStream(DatasetPtr dataset, StreamPlan plan) {
  if (!dataset) throw ConfigError("BatchStream: expected a data set, got a null pointer");
  if (plan.prefetch < 0) {
    throw ConfigError("BatchStream: prefetch: expected 0 or more batches, got {}", plan.prefetch);
  }
  if (plan.threads < 0) {
    throw ConfigError("BatchStream: threads: expected 0 or more, got {}", plan.threads);
  }
  const auto samples = static_cast<std::int64_t>(plan.order.size());
  for (const SampleSlice& slice : plan.batches) {
    if (slice.first < 0 || slice.count < 0 || slice.first > samples - slice.count) {
      throw ConfigError("BatchStream: {} samples from {} on reach beyond the {} of the order",
                        slice.count, slice.first, samples);
    }
  }
  const BatchThreadsOptions ahead{
      .batches = plan.batches.size(),
      .threads = static_cast<std::size_t>(std::max<std::int64_t>(plan.threads, 1)),
      .ahead = batches_ahead(plan),
      .one_torch_thread = plan.threads > 0};
  auto source = std::make_unique<Source>(std::move(dataset), std::move(plan));
  Source& gathering = *source;
  source_ = std::move(source);
  if (ahead.ahead == 0) return;
  draws_ = std::make_unique<GlobalDraws>(
      "loader: a data set, transform or collate draws from LibTorch's global generator. With "
      "threads or prefetch the numbers depend on timing, so the run cannot be repeated. Draw from "
      "the generator of the sample instead: derive from data::RandomDataset or "
      "data::SampleTransform");
  threads_ = std::make_unique<BatchThreads>(
      watched([&gathering](std::size_t number) { return gathering.make(number); }), ahead);
}

BatchStream::BatchStream(std::unique_ptr<BatchSource> source, std::int64_t prefetch)
    : source_(std::move(source)) {
  if (prefetch == 0) return;
  draws_ = std::make_unique<GlobalDraws>(
      "loader: a stream or its collate draws from LibTorch's global generator. With prefetch the "
      "numbers depend on timing, so the run cannot be repeated. Draw from a data::SampleRandom "
      "instead, which the source makes of the key and the shard of its part");
  threads_ = std::make_unique<BatchThreads>(
      watched([source = source_.get()](std::size_t) { return source->next(); }),
      BatchThreadsOptions{.ahead = static_cast<std::size_t>(prefetch)});
}

BatchStream::~BatchStream() = default;
BatchStream::BatchStream(BatchStream&&) noexcept = default;

BatchStream& BatchStream::operator=(BatchStream&& other) noexcept {
  // The old threads must end first, because they still use the old source.
  threads_ = std::move(other.threads_);
  source_ = std::move(other.source_);
  draws_ = std::move(other.draws_);
  current_ = std::move(other.current_);
  return *this;
}

std::optional<Batch> BatchStream::next() {
  if (!threads_) return source_->next();
  std::optional<Batch> batch = threads_->next();
  if (draws_->found) warn_once(draws_->warning);
  return batch;
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
