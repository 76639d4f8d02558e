#include "lockstep/data/sharding.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::data {
namespace {

const DistributedSampler* distributed(const Loader& loader) {
  return dynamic_cast<const DistributedSampler*>(loader.options().sampler.get());
}

std::int64_t divided_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

EpochSize epoch_size(const Loader& loader, std::int64_t shards) {
  const std::int64_t size = loader.options().batch_size;
  const bool drop_last = loader.options().drop_last;
  if (const auto* sampler = distributed(loader)) {
    const std::int64_t each = sampler->of_replica({.index = 0, .count = shards}).size();
    const std::int64_t batches = drop_last ? each / size : divided_up(each, size);
    return {.batches = batches, .samples = std::min(each, batches * size) * shards};
  }
  const std::int64_t all =
      loader.options().sampler ? loader.options().sampler->size() : loader.dataset()->size();
  const std::int64_t batches = drop_last ? all / (size * shards) : divided_up(all, size * shards);
  return {.batches = batches, .samples = std::min(all, batches * size * shards)};
}

ShardedEpoch::ShardedEpoch(const Loader& loader, const EpochKey& key, std::int64_t shards)
    : loader_(loader), shards_(shards), size_(epoch_size(loader, shards)) {
  const auto* sampler = distributed(loader);
  if (sampler == nullptr) {
    order_ = loader.full_order(key);
    order_.resize(static_cast<std::size_t>(size_.samples));
    return;
  }
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    const auto indices = sampler->of_replica({.index = shard, .count = shards}).indices(key.epoch);
    per_replica_ = size_.samples / shards;
    order_.insert(order_.end(), indices.begin(), indices.begin() + per_replica_);
  }
}

Slice ShardedEpoch::slice(std::int64_t batch, std::int64_t shard) const {
  const std::int64_t size = loader_.options().batch_size;
  if (distributed(loader_) != nullptr) {
    const std::int64_t first = batch * size;
    return {.first = shard * per_replica_ + first, .count = std::min(size, per_replica_ - first)};
  }
  const std::int64_t first = std::min((batch * shards_ + shard) * size, size_.samples);
  return {.first = first, .count = std::min(size, size_.samples - first)};
}

std::int64_t ShardedEpoch::samples(std::int64_t batch) const {
  const std::int64_t whole = loader_.options().batch_size * shards_;
  return std::min(whole, size_.samples - batch * whole);
}

BatchStream ShardedEpoch::stream(const Worker& worker) const {
  StreamPlan plan{.order = order_, .prefetch = loader_.options().prefetch};
  for (std::int64_t batch = worker.first_batch; batch < batches(); ++batch) {
    for (std::int64_t i = 0; i < worker.count; ++i) {
      const Slice part = slice(batch, worker.first_shard + i);
      if (part.count > 0) plan.batches.push_back(part);
    }
  }
  return BatchStream(loader_.dataset(), std::move(plan));
}

}  // namespace lockstep::data
