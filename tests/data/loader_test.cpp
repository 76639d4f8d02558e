#include "lockstep/data/loader.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

std::shared_ptr<TensorDataset> numbers(std::int64_t n) {
  return std::make_shared<TensorDataset>(torch::arange(n), torch::arange(n) * 10);
}

// The samples of each batch.
std::vector<Indices> batches(const Loader& loader, const StreamOptions& options = {}) {
  std::vector<Indices> all;
  for (Batch& batch : loader.stream(options)) {
    const torch::Tensor x = batch["features"];
    all.emplace_back(x.data_ptr<std::int64_t>(), x.data_ptr<std::int64_t>() + x.numel());
  }
  return all;
}

TEST(Loader, CutsTheDataIntoBatches) {
  const Loader loader = {numbers(5), {.batch_size = 2}};
  EXPECT_EQ(loader.batches(), 3);
  EXPECT_EQ(loader.samples(), 5);
  EXPECT_EQ(batches(loader), (std::vector<Indices>{{0, 1}, {2, 3}, {4}}));
}

TEST(Loader, DropsTheLastBatchIfTold) {
  const Loader loader = {numbers(5), {.batch_size = 2, .drop_last = true}};
  EXPECT_EQ(loader.batches(), 2);
  EXPECT_EQ(loader.samples(), 4);
  EXPECT_EQ(batches(loader), (std::vector<Indices>{{0, 1}, {2, 3}}));
  EXPECT_EQ(loader.order().size(), 4U);
}

TEST(Loader, ShufflesBySeedAndEpochAlone) {
  const Loader loader = {numbers(20), {.batch_size = 3, .shuffle = true}};
  EXPECT_EQ(loader.order({.seed = 5, .epoch = 2}), permutation(20, 7));
  EXPECT_EQ(loader.order({.seed = 5, .epoch = 2}), loader.order({.seed = 5, .epoch = 2}));
  EXPECT_NE(loader.order({.seed = 5, .epoch = 2}), loader.order({.seed = 5, .epoch = 3}));
  const Loader other_size = {numbers(20), {.batch_size = 7, .shuffle = true}};
  EXPECT_EQ(loader.order(), other_size.order());
  Indices streamed;
  for (const Indices& batch : batches(loader, {.seed = 5, .epoch = 2})) {
    streamed.insert(streamed.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(streamed, permutation(20, 7));
}

TEST(Loader, SeedOfItsOwnComesFirst) {
  const Loader loader = {numbers(20), {.shuffle = true, .seed = 9}};
  EXPECT_EQ(loader.order({.seed = 5, .epoch = 2}), permutation(20, 11));
}

TEST(Loader, TakesTheOrderOfASampler) {
  const DistributedSamplerOptions second{.num_replicas = 2, .rank = 1, .shuffle = false};
  const Loader loader = {
      numbers(5), {.batch_size = 2, .sampler = std::make_shared<DistributedSampler>(5, second)}};
  EXPECT_EQ(loader.samples(), 3);
  EXPECT_EQ(batches(loader), (std::vector<Indices>{{1, 3}, {0}}));
}

TEST(Loader, GoesOnInsideAnEpoch) {
  const Loader loader = {numbers(20), {.batch_size = 3, .shuffle = true}};
  const std::vector<Indices> all = batches(loader, {.epoch = 4});
  const std::vector<Indices> rest = batches(loader, {.epoch = 4, .first_batch = 5});
  EXPECT_EQ(rest, std::vector<Indices>(all.begin() + 5, all.end()));
  EXPECT_TRUE(batches(loader, {.first_batch = 7}).empty());
  EXPECT_THAT(error_text<ConfigError>([&] { loader.stream({.first_batch = 8}); }),
              HasSubstr("first_batch: expected 0 to 7, got 8"));
}

TEST(Loader, GivesEveryNthBatch) {
  const Loader loader = {numbers(20), {.batch_size = 3, .shuffle = true}};
  const std::vector<Indices> all = batches(loader, {.epoch = 4});
  EXPECT_EQ(batches(loader, {.epoch = 4, .first_batch = 1, .step = 3}),
            (std::vector<Indices>{all[1], all[4]}));
  EXPECT_THAT(error_text<ConfigError>([&] { loader.stream({.step = 0}); }),
              HasSubstr("step: expected 1 or more, got 0"));
}

TEST(Loader, DoesNotTouchSamplesBeforeTheFirstBatch) {
  class Guarded : public Dataset {
   public:
    std::int64_t size() const override { return 10; }
    Batch sample(std::int64_t index) const override {
      if (index < 6) throw std::runtime_error("touched");
      return {{"features", torch::tensor(index)}};
    }
  };
  const Loader loader = {std::make_shared<Guarded>(), {.batch_size = 2}};
  EXPECT_EQ(batches(loader, {.first_batch = 3}), (std::vector<Indices>{{6, 7}, {8, 9}}));
}

TEST(Loader, PrefetchChangesNothing) {
  const Loader plain = {numbers(50), {.batch_size = 4, .shuffle = true}};
  const Loader ahead = {numbers(50), {.batch_size = 4, .shuffle = true, .prefetch = 3}};
  EXPECT_EQ(batches(plain, {.epoch = 2}), batches(ahead, {.epoch = 2}));
}

TEST(Loader, OfNothingHasNoBatches) {
  const Loader loader = {numbers(0), {.batch_size = 4, .shuffle = true}};
  EXPECT_EQ(loader.batches(), 0);
  EXPECT_EQ(loader.samples(), 0);
  EXPECT_TRUE(batches(loader).empty());
}

TEST(Loader, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Loader(nullptr), ConfigError);
  EXPECT_EQ(error_text<ConfigError>([] { Loader(numbers(5), {.batch_size = -3}); }),
            "loader: batch_size: expected a positive integer, got -3");
  EXPECT_EQ(error_text<ConfigError>([] { Loader(numbers(5), {.global_batch_size = 1L << 31}); }),
            "loader: global_batch_size: expected at most 2147483647, got 2147483648");
  EXPECT_THROW(Loader(numbers(5), {.prefetch = -1}), ConfigError);
  EXPECT_THROW(Loader(numbers(5), {.threads = -1}), ConfigError);
  EXPECT_THROW(Loader(numbers(5), {.threads = 5000}), ConfigError);
  EXPECT_THROW(
      Loader(numbers(5), {.shuffle = true, .sampler = std::make_shared<SequentialSampler>(5)}),
      ConfigError);
}

TEST(Loader, NamesASampleThatTheSamplerMadeUp) {
  const Loader loader = {numbers(5), {.sampler = std::make_shared<SequentialSampler>(6)}};
  EXPECT_THAT(error_text<DataError>([&] { batches(loader); }), HasSubstr("sample 5"));
}

}  // namespace
}  // namespace lockstep::data
