#include "lockstep/data/sharding.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::data {
namespace {

Loader loader(std::int64_t samples, LoaderOptions options) {
  const auto values = torch::arange(samples);
  return Loader(std::make_shared<TensorDataset>(values, values), std::move(options));
}

// The samples that all workers together get in an epoch, sorted.
std::vector<std::int64_t> seen(const ShardedEpoch& epoch, std::int64_t shards) {
  std::vector<std::int64_t> all;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    for (const Batch& batch : epoch.stream({.first_shard = shard})) {
      const auto values = batch["features"];
      for (std::int64_t i = 0; i < values.numel(); ++i)
        all.push_back(values[i].item<std::int64_t>());
    }
  }
  std::ranges::sort(all);
  return all;
}

TEST(ShardedEpoch, EverySampleComesOnce) {
  for (const std::int64_t samples : {1, 7, 10, 50}) {
    for (const std::int64_t shards : {1, 2, 3, 4, 7}) {
      const ShardedEpoch epoch(loader(samples, {.batch_size = 3, .shuffle = true}), {}, shards);
      std::vector<std::int64_t> all(static_cast<std::size_t>(samples));
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen(epoch, shards), all) << samples << " samples, " << shards << " shards";
    }
  }
}

TEST(ShardedEpoch, AGlobalBatchIsASliceOfTheOrderAndAShardASliceOfThat) {
  const Loader shuffled = loader(50, {.batch_size = 4, .shuffle = true});
  const auto order = shuffled.order({.seed = 3, .epoch = 2});
  const ShardedEpoch epoch(shuffled, {.seed = 3, .epoch = 2}, 3);
  EXPECT_EQ(epoch.batches(), 5);
  std::int64_t next = 0;
  for (std::int64_t k = 0; k < epoch.batches(); ++k) {
    for (std::int64_t s = 0; s < 3; ++s) {
      const SampleSlice slice = epoch.slice(k, s);
      EXPECT_EQ(slice.first, next);
      next += slice.count;
      EXPECT_LE(slice.count, 4);
    }
  }
  EXPECT_EQ(next, 50);
  EXPECT_EQ(epoch.samples(4), 2);
  EXPECT_EQ(epoch.slice(4, 0).count, 2) << "as one process has them";
  EXPECT_EQ(epoch.slice(4, 2).count, 0);
  auto stream = epoch.stream({.first_shard = 1, .first_batch = 1});
  EXPECT_EQ((*stream.next())["features"][0].item<std::int64_t>(), order[16]);
}

TEST(ShardedEpoch, DropLastDropsAGlobalBatchThatIsNotFull) {
  const auto size = epoch_size(loader(50, {.batch_size = 4, .drop_last = true}), 3);
  EXPECT_EQ(size.batches, 4);
  EXPECT_EQ(size.samples, 48);
}

TEST(ShardedEpoch, ADistributedSamplersReplicaIsAShard) {
  const auto sampler = std::make_shared<DistributedSampler>(10);
  const Loader by_sampler = loader(10, {.batch_size = 2, .sampler = sampler});
  const ShardedEpoch epoch(by_sampler, {.epoch = 3}, 4);
  EXPECT_EQ(epoch.batches(), 2) << "three samples per replica, padded";
  for (std::int64_t s = 0; s < 4; ++s) {
    const auto expected = DistributedSampler(10, {.num_replicas = 4, .rank = s}).indices(3);
    std::vector<std::int64_t> found;
    for (const Batch& batch : epoch.stream({.first_shard = s})) {
      for (std::int64_t i = 0; i < batch.size(); ++i) {
        found.push_back(batch["features"][i].item<std::int64_t>());
      }
    }
    EXPECT_EQ(found, expected);
  }
}

// Shard s of n has the samples of the s-th of n equal blocks.
class Blocks : public Sampler {
 public:
  explicit Blocks(std::int64_t samples, ShardIndex shard = {}) : samples_(samples), shard_(shard) {}

  std::int64_t size() const override { return samples_ / shard_.count; }
  std::vector<std::int64_t> indices(std::int64_t) const override {
    std::vector<std::int64_t> mine(static_cast<std::size_t>(size() - missing));
    std::iota(mine.begin(), mine.end(), shard_.index * size());
    return mine;
  }
  std::shared_ptr<const Sampler> of_shard(const ShardIndex& shard) const override {
    auto made = std::make_shared<Blocks>(samples_, shard);
    made->missing = shard.index == 1 ? missing_in_second : 0;
    return made;
  }
  std::int64_t missing_in_second = 0;
  std::int64_t missing = 0;

 private:
  std::int64_t samples_;
  ShardIndex shard_;
};

TEST(ShardedEpoch, AnySamplerMayDivideTheDataSet) {
  const auto sampler = std::make_shared<Blocks>(12);
  const ShardedEpoch epoch(loader(12, {.batch_size = 4, .sampler = sampler}), {}, 2);
  EXPECT_EQ(epoch.batches(), 2);
  std::vector<std::vector<std::int64_t>> firsts;
  for (const std::int64_t shard : {0, 1}) {
    for (const Batch& batch : epoch.stream({.first_shard = shard})) {
      firsts.push_back({batch["features"][0].item<std::int64_t>(), batch.size()});
    }
  }
  EXPECT_THAT(firsts, testing::ElementsAre(
                          std::vector<std::int64_t>{0, 4}, std::vector<std::int64_t>{4, 2},
                          std::vector<std::int64_t>{6, 4}, std::vector<std::int64_t>{10, 2}));
  EXPECT_THROW(batch_split(loader(12, {.sampler = sampler, .global_batch_size = 5}), 2),
               ConfigError);
}

TEST(ShardedEpoch, RefusesShardsOfDifferentSizes) {
  const auto sampler = std::make_shared<Blocks>(12);
  sampler->missing_in_second = 1;
  EXPECT_THROW(ShardedEpoch(loader(12, {.batch_size = 4, .sampler = sampler}), {}, 2), DataError);
}

TEST(ShardedEpoch, RefusesASamplerForAnotherNumberOfReplicas) {
  const auto sampler = std::make_shared<DistributedSampler>(
      10, DistributedSamplerOptions{.num_replicas = 3, .rank = 0});
  EXPECT_THROW(ShardedEpoch(loader(10, {.batch_size = 2, .sampler = sampler}), {}, 4), ConfigError);
}

TEST(BatchSplit, ABatchSizeIsOfOneShard) {
  const Loader some = loader(100, {.batch_size = 32});
  EXPECT_EQ(describe(batch_split(some, 1)), "32");
  EXPECT_EQ(describe(batch_split(some, 2)), "64 = 2 shards x 32");
}

// For any number of shards, every sample is there once, and the global batches are the same.
TEST(BatchSplit, AGlobalBatchSizeIsOfAllShards) {
  const Loader some = loader(25, {.shuffle = true, .global_batch_size = 10});
  EXPECT_EQ(describe(batch_split(some, 3)), "10 = 3 shards x 3 or 4");
  EXPECT_EQ(some.batches(), 3);
  for (const std::int64_t shards : {1, 2, 3, 4, 10}) {
    const ShardedEpoch epoch(some, {}, shards);
    ASSERT_EQ(epoch.batches(), 3);
    std::int64_t next = 0;
    for (std::int64_t batch = 0; batch < 3; ++batch) {
      EXPECT_EQ(epoch.samples(batch), batch < 2 ? 10 : 5);
      for (std::int64_t shard = 0; shard < shards; ++shard) {
        const SampleSlice slice = epoch.slice(batch, shard);
        EXPECT_TRUE(slice.count == 0 || slice.first == next);
        next += slice.count;
      }
    }
    EXPECT_EQ(next, 25) << shards;
  }
}

TEST(BatchSplit, RefusesWhatCannotBeSplit) {
  const auto error = [](const LoaderOptions& options, std::int64_t shards) {
    try {
      batch_split(loader(25, options), shards);
    } catch (const ConfigError& caught) {
      return std::string(caught.what());
    }
    return std::string();
  };
  EXPECT_THAT(error({.global_batch_size = 3}, 4), testing::HasSubstr("4 shards"));
  EXPECT_THAT(error({.global_batch_size = 0}, 1), testing::HasSubstr("positive"));
  EXPECT_THAT(error({.batch_size = 4, .global_batch_size = 8}, 1), testing::HasSubstr("both"));
  EXPECT_THAT(
      error({.sampler = std::make_shared<DistributedSampler>(25), .global_batch_size = 10}, 4),
      testing::HasSubstr("multiple"));
  EXPECT_EQ(error({.sampler = std::make_shared<DistributedSampler>(25), .global_batch_size = 8}, 4),
            "");
}

TEST(EpochSize, MayBeLimited) {
  for (const std::int64_t shards : {1, 2}) {
    const Loader limited = loader(50, {.batch_size = 4, .shuffle = true, .max_batches = 3});
    const ShardedEpoch epoch(limited, {}, shards);
    EXPECT_EQ(epoch.batches(), 3);
    EXPECT_EQ(epoch_size(limited, shards).samples, 12 * shards);
    EXPECT_EQ(seen(epoch, shards).size(), static_cast<std::size_t>(12 * shards));
  }
  EXPECT_EQ(epoch_size(loader(50, {.batch_size = 4, .max_batches = 100}), 1).batches, 13);
  const Loader unsplit = loader(50, {.batch_size = 4, .max_batches = 3});
  EXPECT_EQ(unsplit.batches(), 3);
  EXPECT_EQ(unsplit.samples(), 12);
  EXPECT_EQ(unsplit.order().size(), 12u);
  EXPECT_THROW(loader(50, {.max_batches = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep::data
