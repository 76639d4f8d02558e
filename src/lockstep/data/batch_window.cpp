#include "lockstep/data/batch_window.h"

#include <algorithm>

namespace lockstep::data {

BatchWindow::BatchWindow(const Loader& loader, const WindowOptions& options, std::int64_t shards)
    : loader_(loader),
      key_(options.key),
      shards_(shards),
      size_(epoch_size(loader, shards)),
      global_(batch_split(loader, shards).global),
      first_epoch_(key_.epoch),
      offset_(0),
      batches_(options.batches.value_or(size_.batches)),
      first_batch_(options.first_batch),
      epoch_(loader, first_key(options), shards) {
  if (!options.begin || size_.batches == 0) batches_ = std::min(batches_, size_.batches);
}

// Sets where the window begins, and returns the epoch of first_batch_.
EpochKey BatchWindow::first_key(const WindowOptions& options) {
  if (options.begin && size_.batches > 0) {
    first_epoch_ = *options.begin / size_.batches + 1;
    offset_ = *options.begin % size_.batches;
  }
  return {.seed = key_.seed, .epoch = epoch_of(first_batch_)};
}

std::int64_t BatchWindow::in_epoch(std::int64_t batch) const {
  return size_.batches == 0 ? 0 : (offset_ + batch) % size_.batches;
}

std::int64_t BatchWindow::epoch_of(std::int64_t batch) const {
  return size_.batches == 0 ? first_epoch_ : first_epoch_ + (offset_ + batch) / size_.batches;
}

std::int64_t BatchWindow::samples(std::int64_t batch) const {
  return epoch_.samples(in_epoch(batch));
}

std::int64_t BatchWindow::samples_before(std::int64_t batch) const {
  return samples_of_series(offset_ + batch) - samples_of_series(offset_);
}

std::int64_t BatchWindow::samples_of_series(std::int64_t batches) const {
  if (size_.batches == 0) return 0;
  return batches / size_.batches * size_.samples +
         std::min(batches % size_.batches * global_, size_.samples);
}

SampleSlice BatchWindow::slice(std::int64_t batch, std::int64_t shard) const {
  return epoch_.slice(in_epoch(batch), shard);
}

BatchWindow::Stream::Stream(const BatchWindow& window, const Worker& worker)
    : window_(window),
      worker_(worker),
      epoch_(window.epoch_of(window.first_batch_)),
      stream_(window.epoch_.stream({.first_shard = worker.first_shard,
                                    .count = worker.count,
                                    .first_batch = window.in_epoch(window.first_batch_)})) {}

std::optional<Batch> BatchWindow::Stream::next() {
  for (;;) {
    if (auto batch = stream_.next()) return batch;
    if (epoch_ >= window_.epoch_of(window_.batches_ - 1)) return std::nullopt;
    ++epoch_;
    const ShardedEpoch epoch(window_.loader_, {.seed = window_.key_.seed, .epoch = epoch_},
                             window_.shards_);
    stream_ = epoch.stream({.first_shard = worker_.first_shard, .count = worker_.count});
  }
}

}  // namespace lockstep::data
