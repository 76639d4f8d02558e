#include "lockstep/data/sampler.h"

#include <string_view>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/data/draw_indices.h"

namespace lockstep::data {
namespace {

std::int64_t checked_size(std::string_view sampler, std::int64_t size) {
  if (size < 0) {
    throw ConfigError("{}: expected the size of a data set, got {}", sampler, size);
  }
  return size;
}

std::uint64_t epoch_seed(std::uint64_t seed, std::int64_t epoch) {
  return seed + static_cast<std::uint64_t>(epoch);
}

std::int64_t samples_of_replica(std::int64_t n, const DistributedSamplerOptions& options) {
  const std::int64_t replicas = options.num_replicas.value_or(1);
  return options.drop_last ? n / replicas : (n + replicas - 1) / replicas;
}

}  // namespace

std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const torch::Tensor order =
      torch::randperm(checked_size("permutation", n), generator, torch::dtype(torch::kInt64));
  const auto* first = order.data_ptr<std::int64_t>();
  return {first, first + n};
}

std::shared_ptr<const Sampler> Sampler::of_shard(const ShardIndex&) const {
  return nullptr;
}

std::string Sampler::settings() const {
  return "";
}

std::optional<std::int64_t> Sampler::batch_size() const {
  return std::nullopt;
}

SequentialSampler::SequentialSampler(std::int64_t dataset_size)
    : dataset_size_(checked_size("SequentialSampler", dataset_size)) {}

std::vector<std::int64_t> SequentialSampler::indices(std::int64_t) const {
  return count_up(dataset_size_);
}

RandomSampler::RandomSampler(std::int64_t dataset_size, const RandomSamplerOptions& options)
    : dataset_size_(checked_size("RandomSampler", dataset_size)), options_(options) {}

std::vector<std::int64_t> RandomSampler::indices(std::int64_t epoch) const {
  return permutation(dataset_size_, epoch_seed(options_.seed, epoch));
}

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(checked_size("DistributedSampler", dataset_size)), options_(options) {
  const std::int64_t replicas = options.num_replicas.value_or(1);
  const std::int64_t rank = options.rank.value_or(0);
  if (replicas < 1) {
    throw ConfigError("DistributedSampler: num_replicas: expected a positive integer, got {}",
                      replicas);
  }
  if (rank < 0 || rank >= replicas) {
    throw ConfigError("DistributedSampler: rank: expected 0 to {}, got {}", replicas - 1, rank);
  }
  samples_ = samples_of_replica(dataset_size, options);
}

DistributedSampler DistributedSampler::of_replica(const ReplicaIndex& replica) const {
  if (options_.num_replicas && *options_.num_replicas != replica.count) {
    throw ConfigError(
        "DistributedSampler: num_replicas: expected {}, as many as the run has shards, got {}; "
        "leave it out to use the run's",
        replica.count, *options_.num_replicas);
  }
  DistributedSamplerOptions options = options_;
  options.num_replicas = replica.count;
  options.rank = replica.index;
  return DistributedSampler(dataset_size_, options);
}

std::shared_ptr<const Sampler> DistributedSampler::of_shard(const ShardIndex& shard) const {
  return std::make_shared<DistributedSampler>(of_replica(shard));
}

std::string DistributedSampler::settings() const {
  return fmt::format("{} samples ({}, seed {}{})", dataset_size_,
                     options_.shuffle ? "shuffled" : "in order", options_.seed,
                     options_.drop_last ? ", drop_last" : "");
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch) const {
  const std::vector<std::int64_t> all =
      options_.shuffle ? permutation(dataset_size_, epoch_seed(options_.seed, epoch))
                       : count_up(dataset_size_);
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(samples_));
  for (std::int64_t k = 0; k < samples_; ++k) {
    // After the end it starts again at the beginning. This is PyTorch's padding.
    const std::int64_t at =
        (options_.rank.value_or(0) + k * options_.num_replicas.value_or(1)) % dataset_size_;
    mine.push_back(all[static_cast<std::size_t>(at)]);
  }
  return mine;
}

}  // namespace lockstep::data
