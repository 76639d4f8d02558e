#include "lockstep/data/cache.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/concat.h"
#include "lockstep/data/merge.h"
#include "lockstep/data/transformed.h"
#include "tests/data/error_text.h"
#include "tests/data/toy_transforms.h"
#include "tests/support/rank_process.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

// Sample i has i + 1 values. Counts how often samples are read in this process.
class CountedReads : public Dataset {
 public:
  std::int64_t size() const override { return 20; }
  Batch sample(std::int64_t index) const override {
    ++reads;
    if (index == 19) throw DataError("unreadable");
    return {{"x", torch::full({index + 1}, index, torch::kInt64)}, {"y", torch::tensor(index)}};
  }

  mutable std::atomic<int> reads = 0;
};

std::vector<std::int64_t> first_samples(std::int64_t count) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i);
  return indices;
}

void expect_sample(const Batch& sample, std::int64_t index) {
  EXPECT_TRUE(torch::equal(sample["x"], torch::full({index + 1}, index, torch::kInt64))) << index;
  EXPECT_EQ(sample["y"].item<std::int64_t>(), index);
}

TEST(Cached, ReadsASampleOnce) {
  const auto dataset = std::make_shared<CountedReads>();
  const auto cache = cached(dataset);
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const std::int64_t i : first_samples(19)) expect_sample(cache->sample(i), i);
  }
  EXPECT_EQ(dataset->reads, 19);
  const Cached::Counts counts = cache->counts();
  EXPECT_EQ(counts.samples, 19);
  EXPECT_EQ(counts.hits, 38);
  EXPECT_EQ(counts.misses, 19);
  EXPECT_EQ(counts.refused, 0);
  EXPECT_THAT(cache->describe(), HasSubstr("cache: 19 of 20 samples in "));
  EXPECT_THAT(cache->describe(), HasSubstr("; 38 hits, 19 misses"));
}

TEST(Cached, GathersFromTheCache) {
  const auto dataset = std::make_shared<CountedReads>();
  const auto cache = cached(transformed(
      dataset, {.transform = Lambda([](const torch::Tensor& x) { return x.slice(1, 0, 1); }),
                .keys = {"x"}}));
  const std::vector<std::int64_t> indices = {4, 2, 4};
  for (int again = 0; again < 2; ++again) {
    const Batch batch = cache->gather(indices, {});
    EXPECT_TRUE(torch::equal(batch["y"], torch::tensor(indices, torch::kInt64)));
    EXPECT_TRUE(torch::equal(batch["x"].flatten(), batch["y"]));
  }
  EXPECT_EQ(dataset->reads, 2);
}

TEST(Cached, ASampleMayBeWrittenTo) {
  const auto cache = cached(std::make_shared<CountedReads>());
  cache->sample(3);
  cache->sample(3)["x"].add_(1);
  expect_sample(cache->sample(3), 3);
}

TEST(Cached, ReadsWhatDoesNotFitEachTime) {
  const auto dataset = std::make_shared<CountedReads>();
  const auto cache = cached(dataset, {.memory = 1024});
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const std::int64_t i : first_samples(19)) expect_sample(cache->sample(i), i);
  }
  const Cached::Counts counts = cache->counts();
  EXPECT_GT(counts.samples, 0);
  EXPECT_GT(counts.refused, 0);
  EXPECT_EQ(counts.samples + counts.refused, 19);
  EXPECT_LE(counts.bytes, 1024);
  EXPECT_EQ(dataset->reads, counts.misses);
  EXPECT_EQ(counts.hits, 2 * counts.samples);
  EXPECT_THAT(cache->describe(), HasSubstr(" did not fit"));
}

TEST(Cached, IsSharedByWorkers) {
  const auto dataset = std::make_shared<CountedReads>();
  const auto cache = cached(dataset);
  RankProcess other([&] {
    for (const std::int64_t i : first_samples(19)) cache->sample(i);
    return 0;
  });
  ASSERT_EQ(other.wait(), 0);
  for (const std::int64_t i : first_samples(19)) expect_sample(cache->sample(i), i);
  EXPECT_EQ(dataset->reads, 0) << "in this process";
}

// Workers are killed at any time: while they read a sample, or write one into the cache.
TEST(Cached, AWorkerThatIsKilledHarmsNoOther) {
  const auto dataset = std::make_shared<CountedReads>();
  const auto cache = cached(dataset);
  for (int round = 0; round < 20; ++round) {
    const RankProcess worker([&]() -> int {
      for (std::int64_t i = round % 19;; i = (i + 1) % 19) cache->sample(i);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
  }
  for (int again = 0; again < 2; ++again) {
    for (const std::int64_t i : first_samples(19)) expect_sample(cache->sample(i), i);
  }
}

TEST(Cached, ThreadsMayReadAtOnce) {
  const auto cache = cached(std::make_shared<CountedReads>());
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 400; ++i) {
        const Batch sample = cache->sample(i % 19);
        if (!torch::equal(sample["x"], torch::full({i % 19 + 1}, i % 19, torch::kInt64))) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache->counts().samples, 19);
}

TEST(Cached, NamesTheSampleThatCannotBeRead) {
  const auto cache = cached(std::make_shared<CountedReads>());
  const std::vector<std::int64_t> last = {19};
  EXPECT_EQ(error_text<DataError>([&] { cache->gather(last, {}); }), "sample 19: unreadable");
  EXPECT_THROW(cache->sample(20), DataError);
}

TEST(Cached, RefusesWhatMakesNoSense) {
  const auto random =
      transformed(std::make_shared<CountedReads>(), {.transform = RandomPart(1), .keys = {"x"}});
  EXPECT_THAT(error_text<ConfigError>([&] { cached(random); }),
              HasSubstr("Put the random transforms after the cache"));
  EXPECT_THROW(cached(concat({random})), ConfigError);
  EXPECT_THROW(cached(merge({random})), ConfigError);
  EXPECT_THROW(cached(nullptr), ConfigError);
  EXPECT_THROW(cached(std::make_shared<CountedReads>(), {.memory = 0}), ConfigError);
  EXPECT_THAT(error_text<ConfigError>([] {
                cached(std::make_shared<CountedReads>(),
                       {.memory = std::numeric_limits<std::int64_t>::max() / 2});
              }),
              HasSubstr("Cached: memory: "));
}

}  // namespace
}  // namespace lockstep::data
