#include "lockstep/data/partitioned.h"

#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/base/option_text.h"
#include "lockstep/data/draw_indices.h"
#include "lockstep/data/random.h"
#include "lockstep/data/subset.h"

namespace lockstep::data {
namespace {

// Its samples are taken to be like those of the parts that are here.
class PartElsewhere : public Dataset {
 public:
  PartElsewhere(std::int64_t part, std::int64_t samples, const PartitionOptions& options)
      : part_(part), samples_(samples), like_(options.here.begin()->second) {
    std::vector<std::int64_t> here;
    for (const auto& [number, dataset] : options.here) here.push_back(number);
    here_ = fmt::format("{}", fmt::join(here, ", "));
  }

  std::int64_t size() const override { return samples_; }
  Batch sample(std::int64_t) const override {
    throw DataError(
        "part {} of the data is not on this host, which has: {}; a loader must use the sampler of "
        "the partitioned data set, and a host must have the parts of its workers' shards",
        part_, here_);
  }
  bool is_random() const override { return like_->is_random(); }
  std::uint64_t random_layers() const override { return like_->random_layers(); }
  std::vector<std::string> class_names() const override { return like_->class_names(); }
  bool is_here(std::int64_t) const override { return false; }
  std::vector<std::int64_t> examples(std::int64_t) const override { return {}; }
  const Scaling& scaling() const override { return like_->scaling(); }

 private:
  std::int64_t part_;
  std::int64_t samples_;
  DatasetPtr like_;
  std::string here_;
};

void check_parts(const PartitionOptions& options) {
  if (options.parts < 1) {
    throw ConfigError("partitioned: parts: expected a positive integer, got {}", options.parts);
  }
  if (options.here.empty()) {
    throw ConfigError("partitioned: here: expected at least one part, got none");
  }
  for (const auto& [part, dataset] : options.here) {
    if (part < 0 || part >= options.parts) {
      throw ConfigError("partitioned: here: expected parts 0 to {}, got {}", options.parts - 1,
                        part);
    }
    if (!dataset) throw ConfigError("partitioned: here: part {} is a null pointer", part);
  }
}

std::int64_t samples_of_each(const PartitionOptions& options) {
  check_parts(options);
  const std::int64_t samples = options.samples.value_or(options.here.begin()->second->size());
  if (samples < 0) {
    throw ConfigError("partitioned: samples: expected 0 or more, got {}", samples);
  }
  for (const auto& [part, dataset] : options.here) {
    const std::int64_t size = dataset->size();
    if (size == samples || (options.samples && size > samples)) continue;
    throw DataError(
        "partitioned: part {} has {} samples, expected {}{}; set samples to the size of the "
        "smallest part",
        part, size, options.samples ? "at least " : "as many as in the other parts, ", samples);
  }
  return samples;
}

std::vector<DatasetPtr> all_parts(const PartitionOptions& options) {
  const std::int64_t samples = samples_of_each(options);
  std::vector<DatasetPtr> parts;
  for (std::int64_t part = 0; part < options.parts; ++part) {
    const auto found = options.here.find(part);
    if (found == options.here.end()) {
      parts.push_back(std::make_shared<const PartElsewhere>(part, samples, options));
    } else if (found->second->size() > samples) {
      parts.push_back(std::make_shared<const Subset>(found->second, count_up(samples)));
    } else {
      parts.push_back(found->second);
    }
  }
  return parts;
}

// How the samples are divided among shards.
struct Partition {
  std::int64_t parts = 1;
  std::int64_t samples = 0;  // of each part
  PartitionSamplerOptions options = {};
};

// The order of the samples of one part, as indices of the whole data set.
std::vector<std::int64_t> order_of_part(const Partition& partition, std::int64_t part,
                                        std::int64_t epoch) {
  SampleRandom random({.seed = partition.options.seed, .epoch = 0}, -1 - part);
  auto order = partition.options.shuffle
                   ? RandomSampler(partition.samples, {.seed = random.bits()}).indices(epoch)
                   : count_up(partition.samples);
  for (std::int64_t& index : order) index += part * partition.samples;
  return order;
}

// The samples of one shard: every n-th one of its part, if n shards read it.
class PartOfShardSampler : public Sampler {
 public:
  PartOfShardSampler(Partition partition, const ShardIndex& shard)
      : partition_(partition),
        sharing_(shard.count / partition.parts),
        part_(shard.index / sharing_),
        first_(shard.index % sharing_) {}

  std::int64_t size() const override { return partition_.samples / sharing_; }
  std::vector<std::int64_t> indices(std::int64_t epoch) const override {
    const auto all = order_of_part(partition_, part_, epoch);
    std::vector<std::int64_t> mine;
    mine.reserve(static_cast<std::size_t>(size()));
    for (std::int64_t k = 0; k < size(); ++k) {
      mine.push_back(all[static_cast<std::size_t>(k * sharing_ + first_)]);
    }
    return mine;
  }

 private:
  Partition partition_;
  std::int64_t sharing_;  // shards that read the part
  std::int64_t part_;
  std::int64_t first_;
};

class PartitionSampler : public Sampler {
 public:
  explicit PartitionSampler(Partition partition) : partition_(partition) {}

  std::int64_t size() const override { return partition_.parts * partition_.samples; }

  // For one process that has all parts: a sample of each part in turn.
  std::vector<std::int64_t> indices(std::int64_t epoch) const override {
    std::vector<std::int64_t> order(static_cast<std::size_t>(size()));
    for (std::int64_t part = 0; part < partition_.parts; ++part) {
      std::int64_t place = part;
      for (const std::int64_t index : order_of_part(partition_, part, epoch)) {
        order[static_cast<std::size_t>(place)] = index;
        place += partition_.parts;
      }
    }
    return order;
  }

  std::shared_ptr<const Sampler> of_shard(const ShardIndex& shard) const override {
    if (shard.count % partition_.parts != 0) {
      throw ConfigError(
          "partitioned: expected a number of shards that is a multiple of the {} parts of the "
          "data, "
          "got {}; set the shards of the engine",
          partition_.parts, shard.count);
    }
    return std::make_shared<PartOfShardSampler>(partition_, shard);
  }

  std::string settings() const override {
    return OptionText()
        .with("parts", partition_.parts)
        .with("samples of each", partition_.samples)
        .with("shuffle", partition_.options.shuffle)
        .with("seed", partition_.options.seed)
        .str();
  }

 private:
  Partition partition_;
};

}  // namespace

PartitionedDataset::PartitionedDataset(const PartitionOptions& options)
    : ConcatDataset(all_parts(options)),
      part_count_(options.parts),
      samples_(size() / options.parts) {}

std::shared_ptr<const Sampler> PartitionedDataset::sampler(
    const PartitionSamplerOptions& options) const {
  return std::make_shared<PartitionSampler>(
      Partition{.parts = part_count_, .samples = samples_, .options = options});
}

std::shared_ptr<const PartitionedDataset> partitioned(const PartitionOptions& options) {
  return std::make_shared<const PartitionedDataset>(options);
}

}  // namespace lockstep::data
