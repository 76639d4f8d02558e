#include "lockstep/data/sharding.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

// Nothing if there is one order for all shards.
std::shared_ptr<const Sampler> sampler_of(const Loader& loader, const ShardIndex& shard) {
  const auto& sampler = loader.options().sampler;
  return sampler ? sampler->of_shard(shard) : nullptr;
}

// A sampler may make whole batches. Each shard must get some, or all shards together one.
void check_whole_batches(const Loader& loader, const BatchSplit& split) {
  const auto& sampler = loader.options().sampler;
  const auto whole = sampler ? sampler->batch_size() : std::nullopt;
  if (!whole || split.global == *whole) return;
  if (split.larger == 0 && split.least % *whole == 0) return;
  throw ConfigError(
      "loader: the sampler makes batches of {0}, and a batch of the run is {1}; set batch_size to "
      "{0}, so that each shard has one, or global_batch_size to {0}, so that the shards share one",
      *whole, describe(split));
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

std::int64_t BatchSplit::first_of(std::int64_t shard) const {
  return shard * least + std::min(shard, larger);
}

BatchSplit batch_split(const Loader& loader, std::int64_t shards) {
  const auto& global = loader.options().global_batch_size;
  if (!global) {
    const std::int64_t size = loader.options().batch_size;
    const BatchSplit split{.global = size * shards, .shards = shards, .least = size};
    check_whole_batches(loader, split);
    return split;
  }
  if (*global < shards) {
    throw ConfigError(
        "loader: global_batch_size: expected at least one sample for each of {} shards, got {}",
        shards, *global);
  }
  if (*global % shards != 0 && sampler_of(loader, {.count = shards}) != nullptr) {
    throw ConfigError(
        "loader: global_batch_size: with a sampler that divides the data set among the shards, as "
        "DistributedSampler does, expected a multiple of the {} shards, got {}",
        shards, *global);
  }
  if (*global % shards != 0 && loader.iterable()) {
    throw ConfigError(
        "loader: global_batch_size: with a stream, of which each shard reads its own part, "
        "expected a multiple of the {} shards, got {}",
        shards, *global);
  }
  const BatchSplit split{
      .global = *global, .shards = shards, .least = *global / shards, .larger = *global % shards};
  check_whole_batches(loader, split);
  return split;
}

std::string describe(const BatchSplit& split) {
  if (split.shards == 1) return fmt::format("{}", split.global);
  return fmt::format("{} = {} shards x {}{}", split.global, split.shards, split.least,
                     split.larger > 0 ? fmt::format(" or {}", split.largest()) : "");
}

EpochSize epoch_size(const Loader& loader, std::int64_t shards) {
  const BatchSplit split = batch_split(loader, shards);
  const bool drop_last = loader.options().drop_last;
  const auto limited = [&](std::int64_t batches) {
    return std::min(batches, loader.options().max_batches.value_or(batches));
  };
  if (const auto sampler = sampler_of(loader, {.count = shards})) {
    const std::int64_t each = sampler->size();
    const std::int64_t size = split.least;
    const std::int64_t batches = limited(drop_last ? each / size : divided_up(each, size));
    return {.batches = batches, .samples = std::min(each, batches * size) * shards};
  }
  if (loader.iterable() && !loader.iterable()->samples()) {
    const std::int64_t batches = loader.batches();
    return {.batches = batches, .samples = batches * split.global};
  }
  const std::int64_t all =
      loader.options().sampler ? loader.options().sampler->size() : loader.dataset()->size();
  const std::int64_t batches =
      limited(drop_last ? all / split.global : divided_up(all, split.global));
  return {.batches = batches, .samples = std::min(all, batches * split.global)};
}

ShardedEpoch::ShardedEpoch(const Loader& loader, const EpochKey& key, std::int64_t shards)
    : loader_(loader),
      key_(loader.sample_key(key)),
      split_(batch_split(loader, shards)),
      size_(epoch_size(loader, shards)) {
  if (loader.iterable()) return;
  if (sampler_of(loader, {.count = shards}) == nullptr) {
    order_ = loader.full_order(key);
    order_.resize(static_cast<std::size_t>(size_.samples));
    return;
  }
  per_shard_ = size_.samples / shards;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    const auto indices = sampler_of(loader, {.index = shard, .count = shards})->indices(key.epoch);
    if (static_cast<std::int64_t>(indices.size()) < *per_shard_) {
      throw DataError("loader: the sampler of shard {} gave {} samples, that of shard 0 said {}",
                      shard, indices.size(), *per_shard_);
    }
    order_.insert(order_.end(), indices.begin(), indices.begin() + *per_shard_);
  }
}

SampleSlice ShardedEpoch::slice(std::int64_t batch, std::int64_t shard) const {
  if (loader_.iterable()) {
    return slice_of_stream(loader_.iterable()->samples(), {.index = shard, .count = split_.shards},
                           {.first = batch * split_.least, .count = split_.least});
  }
  if (per_shard_) {
    const std::int64_t first = batch * split_.least;
    return {.first = shard * *per_shard_ + first,
            .count = std::min(split_.least, *per_shard_ - first)};
  }
  const std::int64_t first =
      std::min(batch * split_.global + split_.first_of(shard), size_.samples);
  return {.first = first, .count = std::min(split_.size_of(shard), size_.samples - first)};
}

std::int64_t ShardedEpoch::samples(std::int64_t batch) const {
  return std::min(split_.global, size_.samples - batch * split_.global);
}

BatchStream ShardedEpoch::stream(const Worker& worker) const {
  if (loader_.iterable()) {
    return read_stream({.stream = loader_.iterable(),
                        .key = key_,
                        .shards = split_.shards,
                        .first_shard = worker.first_shard,
                        .count = worker.count,
                        .batch_size = split_.least,
                        .batches = batches(),
                        .first_batch = worker.first_batch,
                        .prefetch = loader_.options().prefetch,
                        .collate = loader_.collate()});
  }
  StreamPlan plan{.order = order_,
                  .key = key_,
                  .prefetch = loader_.options().prefetch,
                  .threads = loader_.options().threads,
                  .collate = loader_.collate()};
  for (std::int64_t batch = worker.first_batch; batch < batches(); ++batch) {
    for (std::int64_t i = 0; i < worker.count; ++i) {
      const SampleSlice part = slice(batch, worker.first_shard + i);
      if (part.count > 0) plan.batches.push_back(part);
    }
  }
  return BatchStream(loader_.dataset(), std::move(plan));
}

}  // namespace lockstep::data
