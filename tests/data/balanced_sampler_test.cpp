#include "lockstep/data/balanced_sampler.h"

#include <map>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/sharding.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Labels = std::vector<std::int64_t>;

// 2, 4 and 10 samples of the classes -1, 3 and 8, mixed.
Labels uneven_labels() {
  return {8, 3, 8, -1, 8, 8, 3, 8, 3, 8, 8, -1, 8, 3, 8, 8};
}

std::map<std::int64_t, std::int64_t> counts_by_class(const Labels& labels,
                                                     const std::vector<std::int64_t>& order) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t index : order) counts[labels.at(static_cast<std::size_t>(index))] += 1;
  return counts;
}

std::size_t distinct(const std::vector<std::int64_t>& order) {
  return std::set(order.begin(), order.end()).size();
}

TEST(BalanceClassSampler, HasEquallyManyOfEachClass) {
  const Labels labels = uneven_labels();
  const auto order = [&](const BalanceClassOptions& options, std::int64_t epoch = 1) {
    const BalanceClassSampler sampler(labels, options);
    const auto indices = sampler.indices(epoch);
    EXPECT_EQ(sampler.size(), static_cast<std::int64_t>(indices.size()));
    for (const auto& [label, count] : counts_by_class(labels, indices)) {
      EXPECT_EQ(count, sampler.samples_per_class()) << label;
    }
    return indices;
  };
  EXPECT_EQ(order({}).size(), 6u);
  EXPECT_EQ(distinct(order({})), 6u) << "no sample twice";
  EXPECT_EQ(order({.mode = BalanceMode::kMax}).size(), 30u);
  const auto four = order({.mode = 4});
  EXPECT_EQ(four.size(), 12u);
  EXPECT_GE(distinct(four), 9u) << "only samples of class -1 come twice";
  EXPECT_NE(order({}, 1), order({}, 2));
  EXPECT_EQ(order({}, 2), order({}, 2));
  EXPECT_NE(order({.seed = 1}), order({.seed = 2}));
}

TEST(BalanceClassSampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(BalanceClassSampler(Labels{}), ConfigError);
  EXPECT_THAT(error_text<ConfigError>([] {
                BalanceClassSampler({1, 2}, {.mode = 0});
              }),
              HasSubstr("mode"));
}

TEST(BalanceClassSampler, TellsWhatDecidesTheOrder) {
  const auto settings = [](const Labels& labels, const BalanceClassOptions& options) {
    return BalanceClassSampler(labels, options).settings();
  };
  EXPECT_EQ(settings({1, 2, 2}, {}), settings({1, 2, 2}, {.mode = 1}));
  EXPECT_NE(settings({1, 2, 2}, {}), settings({1, 2, 1}, {}));
  EXPECT_NE(settings({1, 2, 2}, {}), settings({1, 2, 2}, {.seed = 1}));
  EXPECT_NE(settings({1, 2, 2}, {}), settings({1, 2, 2}, {.mode = BalanceMode::kMax}));
}

TEST(BatchBalanceClassSampler, EveryBatchHasItsClasses) {
  const Labels labels = uneven_labels();
  const BatchBalanceClassSampler sampler(labels, {.num_classes = 2, .num_samples = 3});
  EXPECT_EQ(sampler.size(), 12) << "two batches of six from 16 samples";
  std::set<std::int64_t> seen;
  for (std::int64_t epoch = 1; epoch <= 10; ++epoch) {
    const auto order = sampler.indices(epoch);
    ASSERT_EQ(order.size(), 12u);
    for (auto first = order.begin(); first != order.end(); first += 6) {
      const auto counts = counts_by_class(labels, {first, first + 6});
      EXPECT_EQ(counts.size(), 2u);
      for (const auto& [label, count] : counts) {
        EXPECT_EQ(count, 3);
        seen.insert(label);
      }
      // Samples of a class come one after the other, and twice only if it has too few.
      const std::int64_t label = labels.at(static_cast<std::size_t>(*first));
      EXPECT_EQ(labels.at(static_cast<std::size_t>(*(first + 2))), label);
      EXPECT_TRUE(label == -1 || distinct({first, first + 3}) == 3u);
    }
  }
  EXPECT_EQ(seen.size(), 3u) << "the classes change from batch to batch";
  EXPECT_EQ(BatchBalanceClassSampler(labels, {.num_batches = 7}).size(), 28);
}

TEST(BatchBalanceClassSampler, RefusesWhatMakesNoSense) {
  const auto error = [](const BatchBalanceClassOptions& options) {
    return error_text<ConfigError>([&] { BatchBalanceClassSampler({1, 1, 2}, options); });
  };
  EXPECT_THAT(error({.num_classes = 3}), HasSubstr("num_classes: expected at most the 2 classes"));
  EXPECT_THAT(error({.num_classes = 0}), HasSubstr("num_classes"));
  EXPECT_THAT(error({.num_samples = 0}), HasSubstr("num_samples"));
  EXPECT_THAT(error({.num_batches = 0}), HasSubstr("num_batches"));
  EXPECT_EQ(error({}), "");
}

TEST(BatchBalanceClassSampler, RefusesALoaderWithOtherBatches) {
  const auto sampler =
      std::make_shared<BatchBalanceClassSampler>(uneven_labels(), BatchBalanceClassOptions());
  const auto numbers = tensor_dataset({{"x", torch::arange(16)}});
  EXPECT_NO_THROW(Loader(numbers, {.batch_size = 4, .sampler = sampler}));
  EXPECT_NO_THROW(Loader(numbers, {.sampler = sampler, .global_batch_size = 4}));
  EXPECT_NO_THROW(Loader(numbers, {.batch_size = 2, .sampler = sampler})) << "two shards of it";
  EXPECT_THAT(
      error_text<ConfigError>([&] { Loader(numbers, {.batch_size = 3, .sampler = sampler}); }),
      HasSubstr("batch_size: expected 4, the size of the batches that the sampler makes"));
  EXPECT_THAT(error_text<ConfigError>(
                  [&] { Loader(numbers, {.sampler = sampler, .global_batch_size = 2}); }),
              HasSubstr("global_batch_size: expected 4, the size"));
}

TEST(BatchBalanceClassSampler, ShardsHaveItsBatchesOrShareThem) {
  const auto sampler =
      std::make_shared<BatchBalanceClassSampler>(uneven_labels(), BatchBalanceClassOptions());
  const auto numbers = tensor_dataset({{"x", torch::arange(16)}});
  const Loader each(numbers, {.batch_size = 4, .sampler = sampler});
  const Loader shared(numbers, {.sampler = sampler, .global_batch_size = 4});
  for (const std::int64_t shards : {1, 2, 3}) {
    EXPECT_EQ(batch_split(each, shards).global, 4 * shards);
    EXPECT_EQ(batch_split(shared, shards).global, 4);
  }
  const Loader halves(numbers, {.batch_size = 2, .sampler = sampler});
  EXPECT_EQ(batch_split(halves, 2).global, 4);
  EXPECT_THAT(error_text<ConfigError>([&] { batch_split(halves, 1); }),
              HasSubstr("the sampler makes batches of 4, and a batch of the run is 2"));
  EXPECT_THROW(batch_split(halves, 3), ConfigError);
  const Loader two(numbers, {.sampler = sampler, .global_batch_size = 8});
  EXPECT_EQ(batch_split(two, 2).least, 4);
  EXPECT_EQ(batch_split(two, 1).least, 8) << "two whole batches";
  EXPECT_THROW(batch_split(two, 4), ConfigError);
}

TEST(DynamicBalanceClassSampler, GoesFromTheDataToEqualClasses) {
  const Labels labels = uneven_labels();
  const DynamicBalanceClassSampler sampler(labels, {.exp_lambda = 0.5});
  EXPECT_THAT(sampler.class_counts(1), ElementsAre(2, 4, 10)) << "as in the data";
  // D = 1, 2, 5 to the power of one half: 1, 1.414, 2.236 of 4.650, times 16.
  EXPECT_THAT(sampler.class_counts(2), ElementsAre(3, 5, 8));
  EXPECT_THAT(sampler.class_counts(40), ElementsAre(5, 5, 6)) << "16 samples, as equal as can be";
  for (const std::int64_t epoch : {1, 2, 40}) {
    const auto counts = sampler.class_counts(epoch);
    const auto found = counts_by_class(labels, sampler.indices(epoch));
    EXPECT_EQ(found.at(-1), counts[0]);
    EXPECT_EQ(found.at(3), counts[1]);
    EXPECT_EQ(found.at(8), counts[2]);
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), sampler.size());
  }
}

TEST(DynamicBalanceClassSampler, HasOptions) {
  const Labels labels = uneven_labels();
  const auto counts = [&](const DynamicBalanceClassOptions& options) {
    return DynamicBalanceClassSampler(labels, options).class_counts(1);
  };
  EXPECT_EQ(counts({.exp_lambda = 0.5, .start_epoch = 1}),
            DynamicBalanceClassSampler(labels, {.exp_lambda = 0.5}).class_counts(2));
  EXPECT_THAT(counts({.max_d = 2, .samples = 50}), ElementsAre(10, 20, 20));
  const auto error = [&](const DynamicBalanceClassOptions& options) {
    return error_text<ConfigError>([&] { DynamicBalanceClassSampler(labels, options); });
  };
  EXPECT_THAT(error({.exp_lambda = 1}), HasSubstr("exp_lambda"));
  EXPECT_THAT(error({.start_epoch = -1}), HasSubstr("start_epoch"));
  EXPECT_THAT(error({.max_d = 0.5}), HasSubstr("max_d"));
  EXPECT_THAT(error({.samples = 0}), HasSubstr("samples"));
}

}  // namespace
}  // namespace lockstep::data
