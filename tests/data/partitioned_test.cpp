#include "lockstep/data/partitioned.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/scaling.h"
#include "lockstep/data/sharding.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Samples of part p are 1000 * p, 1000 * p + 1, …
DatasetPtr part_of_data(std::int64_t part, std::int64_t samples) {
  return tensor_dataset({{"x", torch::arange(samples) + 1000 * part}});
}

std::vector<std::int64_t> values_of_shards(const Loader& loader, std::int64_t epoch,
                                           const ShardIndex& shard) {
  std::vector<std::int64_t> values;
  const ShardedEpoch sharded(loader, {.epoch = epoch}, shard.count);
  for (const Batch& batch : sharded.stream({.first_shard = shard.index})) {
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      values.push_back(batch["x"][i].item<std::int64_t>());
    }
  }
  return values;
}

// Each host reads what a host with all parts reads for the same shards.
TEST(Partitioned, AShardReadsOnePartWhereverItIs) {
  const auto whole =
      partitioned({.parts = 2, .here = {{0, part_of_data(0, 11)}, {1, part_of_data(1, 11)}}});
  const Loader everywhere(whole, {.batch_size = 2, .sampler = whole->sampler()});
  for (const std::int64_t shards : {2, 4}) {
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      const std::int64_t part = shard * 2 / shards;
      const auto own = partitioned({.parts = 2, .here = {{part, part_of_data(part, 11)}}});
      const Loader here(own, {.batch_size = 2, .sampler = own->sampler()});
      for (const std::int64_t epoch : {1, 2}) {
        const auto values = values_of_shards(here, epoch, {.index = shard, .count = shards});
        EXPECT_EQ(values.size(), shards == 2 ? 11u : 5u);
        EXPECT_EQ(values, values_of_shards(everywhere, epoch, {.index = shard, .count = shards}));
        for (const std::int64_t value : values) EXPECT_EQ(value / 1000, part);
      }
      EXPECT_NE(values_of_shards(here, 1, {.index = shard, .count = shards}),
                values_of_shards(here, 2, {.index = shard, .count = shards}));
    }
  }
  std::set<std::int64_t> seen;
  for (std::int64_t shard = 0; shard < 4; ++shard) {
    for (const std::int64_t value : values_of_shards(everywhere, 1, {.index = shard, .count = 4})) {
      EXPECT_TRUE(seen.insert(value).second) << "no sample in two shards";
    }
  }
}

TEST(Partitioned, OneProcessTakesThePartsInTurn) {
  const auto whole =
      partitioned({.parts = 2, .here = {{0, part_of_data(0, 3)}, {1, part_of_data(1, 3)}}});
  EXPECT_THAT(whole->sampler({.shuffle = false})->indices(1), ElementsAre(0, 3, 1, 4, 2, 5));
  auto shuffled = whole->sampler()->indices(1);
  std::ranges::sort(shuffled);
  EXPECT_THAT(shuffled, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(Partitioned, ALookBeforeTheRunReadsAPartThatIsHere) {
  const auto second = partitioned({.parts = 2, .here = {{1, part_of_data(1, 3)}}});
  EXPECT_THAT(second->examples(2), ElementsAre(3, 4));
  EXPECT_THAT(second->examples(9), ElementsAre(3, 4, 5));
  EXPECT_EQ(second->sample(4)["x"].item<std::int64_t>(), 1001);
  EXPECT_THAT(error_text<DataError>([&] { second->sample(0); }),
              HasSubstr("part 0 of the data is not on this host, which has: 1"));
}

TEST(Partitioned, UsesEquallyManySamplesOfEachPart) {
  const PartitionOptions uneven{.parts = 2,
                                .here = {{0, part_of_data(0, 3)}, {1, part_of_data(1, 5)}}};
  EXPECT_THAT(error_text<DataError>([&] { partitioned(uneven); }),
              HasSubstr("part 1 has 5 samples, expected as many as in the other parts, 3"));
  PartitionOptions limited = uneven;
  limited.samples = 3;
  EXPECT_EQ(partitioned(limited)->size(), 6);
  EXPECT_EQ(partitioned(limited)->samples_of_part(), 3);
  EXPECT_EQ(partitioned(limited)->sample(5)["x"].item<std::int64_t>(), 1002);
  limited.samples = 4;
  EXPECT_THAT(error_text<DataError>([&] { partitioned(limited); }),
              HasSubstr("part 0 has 3 samples, expected at least 4"));
}

TEST(Partitioned, RefusesWhatMakesNoSense) {
  EXPECT_THROW(partitioned({.parts = 0, .here = {{0, part_of_data(0, 3)}}}), ConfigError);
  EXPECT_THROW(partitioned({.parts = 2}), ConfigError);
  EXPECT_THROW(partitioned({.parts = 2, .here = {{2, part_of_data(0, 3)}}}), ConfigError);
  EXPECT_THROW(partitioned({.parts = 2, .here = {{0, nullptr}}}), ConfigError);
  const auto two = partitioned({.parts = 2, .here = {{0, part_of_data(0, 3)}}});
  EXPECT_THAT(error_text<ConfigError>([&] { two->sampler()->of_shard({.count = 3}); }),
              HasSubstr("a multiple of the 2 parts of the data, got 3"));
}

TEST(Partitioned, TheSamplerTellsWhatDecidesTheOrder) {
  const auto settings = [](std::int64_t samples, const PartitionSamplerOptions& options) {
    return partitioned({.here = {{0, part_of_data(0, samples)}}})->sampler(options)->settings();
  };
  EXPECT_EQ(settings(3, {}), settings(3, {}));
  EXPECT_NE(settings(3, {}), settings(4, {}));
  EXPECT_NE(settings(3, {}), settings(3, {.seed = 1}));
  EXPECT_NE(settings(3, {}), settings(3, {.shuffle = false}));
}

// All ranks must know the classes and the scaling: a model has as many outputs as classes.
TEST(Partitioned, APartElsewhereIsLikeThoseThatAreHere) {
  struct Told : ScaledDataset {
    std::int64_t size() const override { return 3; }
    Batch sample(std::int64_t) const override { return {{"targets", torch::ones({1, 1})}}; }
    bool is_random() const override { return true; }
    std::vector<std::string> class_names() const override { return {"cat", "dog"}; }
    const Scaling& scaling() const override { return own; }
    Scaling own{.targets = {.kind = Normalization::kStandard, .shift = {0}, .scale = {10}}};
  };
  const auto told = std::make_shared<Told>();
  const auto second = partitioned({.parts = 2, .here = {{1, told}}});
  EXPECT_THAT(second->class_names(), ElementsAre("cat", "dog"));
  EXPECT_EQ(scaling_of(*second), told->own);
  EXPECT_TRUE(second->is_random());
  EXPECT_FALSE(second->is_here(2));
  EXPECT_TRUE(second->is_here(3));
  EXPECT_EQ(second->part_count(), 2);
}

}  // namespace
}  // namespace lockstep::data
