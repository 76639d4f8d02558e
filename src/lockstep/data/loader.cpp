#include "lockstep/data/loader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// With this limit, batch_size times the number of shards cannot overflow, nor can the number of
// samples plus a batch.
constexpr std::int64_t kLargestBatch = std::numeric_limits<std::int32_t>::max();

// More than any machine has cores. A larger number is a mistake, such as a batch size.
constexpr std::int64_t kMostThreads = 1024;

void check_batch_size(const char* option, std::int64_t size) {
  if (size < 1) {
    throw ConfigError("loader: {}: expected a positive integer, got {}", option, size);
  }
  if (size > kLargestBatch) {
    throw ConfigError("loader: {}: expected at most {}, got {}", option, kLargestBatch, size);
  }
}

void check_iterable(const IterableDataset& stream, const LoaderOptions& options) {
  if (options.shuffle || options.sampler) {
    throw ConfigError(
        "loader: {}: a stream is read in its own order; let its open() choose the order by the "
        "key of the part",
        options.shuffle ? "shuffle" : "sampler");
  }
  if (options.threads > 0) {
    throw ConfigError(
        "loader: threads: expected 0, because a stream is read by one thread, in its order, got "
        "{}; set prefetch to the number of batches that another thread prepares ahead",
        options.threads);
  }
  if (const auto samples = stream.samples(); samples && *samples < 0) {
    throw ConfigError("loader: expected 0 or more samples() of the stream, got {}", *samples);
  }
}

// A sampler that makes whole batches. How many shards there are is known later (batch_split).
void check_whole_batches(std::int64_t whole, const LoaderOptions& options) {
  if (whole < 1) {
    throw ConfigError("loader: sampler: expected a positive batch_size() of it, got {}", whole);
  }
  if (options.global_batch_size && *options.global_batch_size % whole != 0) {
    throw ConfigError(
        "loader: global_batch_size: expected {}, the size of the batches that the sampler makes, "
        "or so many for each shard, got {}",
        whole, *options.global_batch_size);
  }
  if (!options.global_batch_size && whole % options.batch_size != 0) {
    throw ConfigError(
        "loader: batch_size: expected {}, the size of the batches that the sampler makes, or a "
        "part of it for each shard, got {}",
        whole, options.batch_size);
  }
}

}  // namespace

Loader::Loader(DatasetPtr dataset, LoaderOptions options)
    : dataset_(std::move(dataset)),
      iterable_(std::dynamic_pointer_cast<const IterableDataset>(dataset_)),
      options_(std::move(options)),
      collate_(options_.collate.followed_by(options_.batch_transform)) {
  if (!dataset_) {
    throw ConfigError(
        "loader: expected a data set, got a null pointer; a field has no data for validation "
        "without train_fraction");
  }
  check_batch_size("batch_size", options_.batch_size);
  if (options_.global_batch_size) {
    check_batch_size("global_batch_size", *options_.global_batch_size);
  }
  if (options_.global_batch_size && options_.batch_size != LoaderOptions().batch_size) {
    throw ConfigError(
        "loader: expected batch_size, which is of one shard, or global_batch_size, which is of all "
        "of them, got both: {} and {}",
        options_.batch_size, *options_.global_batch_size);
  }
  if (options_.max_batches && *options_.max_batches < 1) {
    throw ConfigError("loader: max_batches: expected a positive integer, got {}",
                      *options_.max_batches);
  }
  if (options_.prefetch < 0) {
    throw ConfigError("loader: prefetch: expected 0 or more batches, got {}", options_.prefetch);
  }
  if (options_.threads < 0 || options_.threads > kMostThreads) {
    throw ConfigError("loader: threads: expected 0 to {}, got {}", kMostThreads, options_.threads);
  }
  if (options_.sampler && options_.shuffle) {
    throw ConfigError("loader: expected a sampler or shuffle, got both");
  }
  if (iterable_) check_iterable(*iterable_, options_);
  const auto whole = options_.sampler ? options_.sampler->batch_size() : std::nullopt;
  if (whole) check_whole_batches(*whole, options_);
}

std::int64_t Loader::order_size() const {
  if (!has_length()) {
    throw ConfigError(
        "loader: max_batches: expected the number of batches of an epoch, because the stream does "
        "not tell its number of samples, got none; set it, or override samples() of the stream. "
        "Only training with steps_per_epoch or num_steps needs neither");
  }
  if (iterable_ && !iterable_->samples()) return *options_.max_batches * unsplit_batch_size();
  return options_.sampler ? options_.sampler->size() : dataset_->size();
}

std::int64_t Loader::batches() const {
  const std::int64_t size = unsplit_batch_size();
  const std::int64_t all =
      order_size() / size + (!options_.drop_last && order_size() % size != 0 ? 1 : 0);
  return std::min(all, options_.max_batches.value_or(all));
}

std::int64_t Loader::samples() const {
  return std::min(order_size(), batches() * unsplit_batch_size());
}

std::vector<std::int64_t> Loader::order(const EpochKey& key) const {
  std::vector<std::int64_t> order = full_order(key);
  order.resize(static_cast<std::size_t>(samples()));
  return order;
}

EpochKey Loader::sample_key(const EpochKey& key) const {
  return {.seed = options_.seed.value_or(key.seed), .epoch = key.epoch};
}

std::vector<std::int64_t> Loader::full_order(const EpochKey& key) const {
  if (iterable_) {
    throw ConfigError("loader: the order of samples is not known, because they come from a stream");
  }
  std::vector<std::int64_t> order;
  if (options_.sampler) {
    order = options_.sampler->indices(key.epoch);
  } else if (options_.shuffle) {
    const RandomSampler shuffled(dataset_->size(), {.seed = options_.seed.value_or(key.seed)});
    order = shuffled.indices(key.epoch);
  } else {
    order = SequentialSampler(dataset_->size()).indices(key.epoch);
  }
  if (static_cast<std::int64_t>(order.size()) != order_size()) {
    throw DataError("loader: the sampler said {} samples and gave {}", order_size(), order.size());
  }
  return order;
}

BatchStream Loader::stream(const StreamOptions& options) const {
  if (options.first_batch < 0 || options.first_batch > batches()) {
    throw ConfigError("loader: first_batch: expected 0 to {}, got {}", batches(),
                      options.first_batch);
  }
  if (options.step < 1) {
    throw ConfigError("loader: step: expected 1 or more, got {}", options.step);
  }
  if (iterable_) {
    return read_stream({.stream = iterable_,
                        .key = sample_key({.seed = options.seed, .epoch = options.epoch}),
                        .batch_size = unsplit_batch_size(),
                        .batches = batches(),
                        .first_batch = options.first_batch,
                        .step = options.step,
                        .prefetch = options_.prefetch,
                        .collate = collate_});
  }
  StreamPlan plan{.order = order({.seed = options.seed, .epoch = options.epoch}),
                  .key = sample_key({.seed = options.seed, .epoch = options.epoch}),
                  .prefetch = options_.prefetch,
                  .threads = options_.threads,
                  .collate = collate_};
  const std::int64_t size = unsplit_batch_size();
  for (std::int64_t k = options.first_batch; k < batches(); k += options.step) {
    plan.batches.push_back({.first = k * size, .count = std::min(size, samples() - k * size)});
  }
  return BatchStream(dataset_, std::move(plan));
}

}  // namespace lockstep::data
