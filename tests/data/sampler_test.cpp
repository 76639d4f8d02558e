#include "lockstep/data/sampler.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

using Indices = std::vector<std::int64_t>;
using nlohmann::json;

// The indices that PyTorch gives. scripts/goldens/data_sampler.py wrote the file.
json goldens() {
  std::ifstream file(std::string(LOCKSTEP_GOLDENS) + "/data_sampler.json");
  return json::parse(file);
}

std::string fnv1a(const Indices& indices) {
  std::uint64_t state = 0xcbf29ce484222325U;
  for (const std::int64_t index : indices) {
    for (int shift = 0; shift < 64; shift += 8) {
      state = (state ^ (static_cast<std::uint64_t>(index) >> shift & 0xff)) * 0x100000001b3U;
    }
  }
  return to_hex(state);
}

void expect_golden(const json& golden, const Indices& indices) {
  SCOPED_TRACE(golden.dump());
  if (golden.contains("indices")) {
    EXPECT_EQ(indices, golden["indices"].get<Indices>());
    return;
  }
  ASSERT_EQ(indices.size(), golden["size"].get<std::size_t>());
  EXPECT_EQ(Indices(indices.begin(), indices.begin() + 3), golden["first"].get<Indices>());
  EXPECT_EQ(Indices(indices.end() - 3, indices.end()), golden["last"].get<Indices>());
  EXPECT_EQ(fnv1a(indices), golden["hash"].get<std::string>());
}

TEST(Permutation, IsPyTorchs) {
  const json cases = goldens()["permutations"];
  ASSERT_GE(cases.size(), 30U);
  for (const json& golden : cases) {
    expect_golden(golden, permutation(golden["n"], std::stoull(golden["seed"].get<std::string>())));
  }
}

TEST(DistributedSampler, IsPyTorchs) {
  const json cases = goldens()["samplers"];
  ASSERT_GE(cases.size(), 500U);
  for (const json& golden : cases) {
    const DistributedSampler sampler(golden["n"], {.num_replicas = golden["replicas"],
                                                   .rank = golden["rank"],
                                                   .shuffle = golden["shuffle"],
                                                   .seed = golden["seed"],
                                                   .drop_last = golden["drop_last"]});
    const Indices indices = sampler.indices(golden["epoch"]);
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(indices.size()));
    expect_golden(golden, indices);
  }
}

TEST(DistributedSampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(DistributedSampler(10, {.num_replicas = 2, .rank = 2}), ConfigError);
  EXPECT_THROW(DistributedSampler(10, {.num_replicas = 2, .rank = -1}), ConfigError);
  EXPECT_THROW(DistributedSampler(10, {.num_replicas = 0}), ConfigError);
  EXPECT_THROW(DistributedSampler(-1, {}), ConfigError);
}

TEST(DistributedSampler, HasOneSamplerPerShardAndOthersHaveNone) {
  const DistributedSampler sampler(10, {.seed = 3});
  const auto second = sampler.of_shard({.index = 1, .count = 4});
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->indices(2),
            DistributedSampler(10, {.num_replicas = 4, .rank = 1, .seed = 3}).indices(2));
  EXPECT_EQ(RandomSampler(10).of_shard({.index = 1, .count = 4}), nullptr);
  EXPECT_EQ(RandomSampler(10).settings(), "");
}

TEST(DistributedSampler, TellsWhatDecidesTheOrderButNotTheRank) {
  const auto settings = [](const DistributedSamplerOptions& options) {
    return DistributedSampler(10, options).settings();
  };
  EXPECT_EQ(settings({.seed = 3}), "10 samples (shuffled, seed 3)");
  EXPECT_EQ(settings({.shuffle = false, .drop_last = true}),
            "10 samples (in order, seed 0, drop_last)");
  EXPECT_EQ(settings({.num_replicas = 2, .rank = 1}), settings({.num_replicas = 2, .rank = 0}));
}

TEST(DistributedSampler, OfNothingGivesNothing) {
  EXPECT_TRUE(DistributedSampler(0, {.num_replicas = 3, .rank = 1}).indices(0).empty());
}

TEST(RandomSampler, IsDistributedSamplerWithOneReplica) {
  const RandomSampler random(101, {.seed = 5});
  const DistributedSampler distributed(101, {.seed = 5});
  EXPECT_EQ(random.indices(3), distributed.indices(3));
  EXPECT_NE(random.indices(3), random.indices(4));
  EXPECT_EQ(random.indices(3), permutation(101, 8));
}

TEST(SequentialSampler, CountsUp) {
  EXPECT_EQ(SequentialSampler(3).indices(7), (Indices{0, 1, 2}));
  EXPECT_THROW(SequentialSampler(-1), ConfigError);
}

}  // namespace
}  // namespace lockstep::data
