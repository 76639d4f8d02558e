#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/data/balanced_sampler.h"
#include "lockstep/data/length_sampler.h"
#include "lockstep/data/list_dataset.h"
#include "lockstep/data/mini_epoch_sampler.h"
#include "lockstep/data/subset_sampler.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/data/weighted_sampler.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

const std::vector<std::int64_t>& ten_labels() {
  static const std::vector<std::int64_t> labels = {0, 1, 1, 1, 0, 1, 1, 2, 2, 1};
  return labels;
}

SampledData labelled() {
  return SampledData(data::tensor_dataset({{"targets", torch::tensor(ten_labels())},
                                           {"parity", torch::arange(10) % 2}}),
                     6);
}

SamplerPtr made(const std::string& text) {
  return targets().samplers.make(node(text), labelled());
}

// The sampler of a config gives the order of the same sampler in C++.
void expect_same(const std::string& text, const data::Sampler& expected) {
  const SamplerPtr found = made(text);
  EXPECT_EQ(found->settings(), expected.settings()) << text;
  EXPECT_EQ(found->indices(3), expected.indices(3)) << text;
}

TEST(SamplerTargets, AreMadeOfTheDataSet) {
  const auto& labels = ten_labels();
  expect_same("BalanceClassSampler", data::BalanceClassSampler(labels));
  expect_same("{BalanceClassSampler: {mode: max, seed: 4}}",
              data::BalanceClassSampler(labels, {.mode = data::BalanceMode::kMax, .seed = 4}));
  expect_same("{BalanceClassSampler: {mode: 3}}", data::BalanceClassSampler(labels, {.mode = 3}));
  expect_same("{BalanceClassSampler: {key: parity}}",
              data::BalanceClassSampler({0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  expect_same("{BatchBalanceClassSampler: {num_classes: 3, num_samples: 2, num_batches: 5}}",
              data::BatchBalanceClassSampler(
                  labels, {.num_classes = 3, .num_samples = 2, .num_batches = 5}));
  expect_same(
      "{DynamicBalanceClassSampler: {exp_lambda: 0.5, max_d: 2, samples: 20}}",
      data::DynamicBalanceClassSampler(labels, {.exp_lambda = 0.5, .max_d = 2, .samples = 20}));
  expect_same("{WeightedRandomSampler: {class_weights: [1, 0, 2], samples: 4, replacement: false}}",
              data::WeightedRandomSampler({1, 0, 0, 0, 1, 0, 0, 2, 2, 0},
                                          {.samples = 4, .replacement = false}));
  expect_same("{MiniEpochSampler: {mini_epoch_length: 4, shuffle: per_epoch}}",
              data::MiniEpochSampler(
                  10, {.mini_epoch_length = 4, .shuffle = data::MiniEpochShuffle::kPerEpoch}));
  expect_same("{SubsetRandomSampler: {indices: [3, 9]}}", data::SubsetRandomSampler({3, 9}));
}

TEST(SamplerTargets, LengthsTakeTheBatchSizeOfTheLoader) {
  std::vector<Batch> samples;
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < 20; ++i) {
    lengths.push_back(1 + i * 7 % 20);
    samples.push_back({{"features", torch::zeros({lengths.back()})}});
  }
  const auto sampler =
      targets().samplers.make(node("{LengthSampler: {batches_per_pool: 2}}"),
                              SampledData(data::list_dataset(std::move(samples)), 4));
  const data::LengthSampler expected(lengths, {.batch_size = 4, .batches_per_pool = 2});
  EXPECT_EQ(sampler->indices(1), expected.indices(1));
  EXPECT_EQ(sampler->batch_size(), 4);
}

TEST(SamplerTargets, ErrorsNameThePlace) {
  EXPECT_THAT(error_of([] { made("{BalanceClassSampler: {mode: mix}}"); }),
              HasSubstr("it/BalanceClassSampler/mode: expected min or max"));
  EXPECT_THAT(error_of([] { made("{SubsetRandomSampler: {indices: [10]}}"); }),
              HasSubstr("it/SubsetRandomSampler/indices: expected 0 to 9, got 10"));
  EXPECT_THAT(error_of([] { made("{BalanceClassSampler: {key: target}}"); }), HasSubstr("targets"));
  EXPECT_THAT(error_of([] { targets().samplers.make(node("BalanceClassSampler"), 5); }),
              HasSubstr("only its size"));
}

TEST(JoinedDatasets, AreMadeByName) {
  const std::string noise = "{Noise: {samples: 10, shape: 2, classes: 3, seed: ";
  const auto both =
      targets().datasets.make(node("{Concat: {datasets: [" + noise + "1}}, " + noise + "2}}]}}"));
  EXPECT_EQ(both->size(), 20);
  const auto second = targets().datasets.make(node(noise + "2}}"));
  EXPECT_TRUE(both->sample(13)["features"].equal(second->sample(3)["features"]));
  const auto merged =
      targets().datasets.make(node("{Merge: {datasets: [" + noise + "1}}, " + noise + "2}}]}}"));
  EXPECT_TRUE(merged->sample(3)["features"].equal(second->sample(3)["features"]));
  EXPECT_THAT(error_of([] { targets().datasets.make(node("{Concat: {datasets: []}}")); }),
              HasSubstr("at least one"));
}

TEST(Partitioned, IsMadeWithItsSampler) {
  const std::string text =
      "{Partitioned: {dataset: {Noise: {samples: 10, shape: 2}}, part: 1, parts: 2, samples: 8}}";
  const auto dataset = targets().datasets.make(node(text));
  EXPECT_EQ(dataset->size(), 16);
  EXPECT_NO_THROW(dataset->sample(8));
  EXPECT_THROW(dataset->sample(7), DataError);
  const auto sampler = targets().samplers.make(node("{PartitionSampler: {shuffle: false}}"),
                                               SampledData(dataset, 2));
  const auto second = sampler->of_shard({.index = 1, .count = 2});
  EXPECT_THAT(second->indices(1), ::testing::ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(error_of([] { made("PartitionSampler"); }),
              HasSubstr("expected a Partitioned data set in the loader"));
}

}  // namespace
}  // namespace lockstep::recipe
