#include "lockstep/data/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/labels.h"
#include "lockstep/data/list_dataset.h"
#include "lockstep/data/partitioned.h"
#include "lockstep/data/scaling.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::data {
namespace {

TEST(Merge, ASampleHasTheKeysOfAll) {
  const auto merged = merge({tensor_dataset({{"x", torch::arange(4)}, {"y", torch::arange(4)}}),
                             tensor_dataset({{"y", torch::arange(4) * 10}})});
  EXPECT_EQ(merged->size(), 4);
  EXPECT_EQ(merged->sample(3)["x"].item<std::int64_t>(), 3);
  EXPECT_EQ(merged->sample(3)["y"].item<std::int64_t>(), 30) << "the later one is used";
  const std::vector<std::int64_t> indices = {2, 1};
  const Batch old = merged->gather(indices, {});
  EXPECT_TRUE(old["y"].equal(torch::tensor({20, 10}, torch::kInt64)));
  const Batch batch = merged->gather(indices, old);
  EXPECT_TRUE(batch["x"].is_same(old["x"])) << "memory is used again";
  EXPECT_TRUE(batch["x"].equal(torch::tensor({2, 1}, torch::kInt64)));
  EXPECT_TRUE(batch["y"].equal(torch::tensor({20, 10}, torch::kInt64)));
}

// So that an image and its mask are changed in the same way.
TEST(Merge, AllDrawTheSameNumbers) {
  struct Drawn : RandomDataset {
    explicit Drawn(std::string name) : key(std::move(name)) {}
    std::int64_t size() const override { return 5; }
    Batch sample(SampleContext& context) const override {
      return {{key, torch::tensor(context.random.uniform(), torch::kFloat64)}};
    }
    std::string key;
  };
  const auto merged = merge({std::make_shared<Drawn>("image"), std::make_shared<Drawn>("mask")});
  const Batch first = merged->sample_in_epoch(2, {.epoch = 1});
  EXPECT_TRUE(first["image"].equal(first["mask"]));
  EXPECT_FALSE(first["image"].equal(merged->sample_in_epoch(2, {.epoch = 2})["image"]));
  const std::vector<std::int64_t> indices = {2, 3};
  const Batch both = merged->gather_in_epoch(indices, {.epoch = 1}, {});
  EXPECT_TRUE(both["mask"][0].equal(first["mask"]));
}

TEST(Merge, AColumnIsThatOfTheLastThatHasTheKey) {
  const auto known = tensor_dataset({{"targets", torch::arange(2)}});
  const auto other = tensor_dataset({{"x", torch::arange(2)}});
  EXPECT_TRUE(merge({known, other})->column("targets").equal(torch::arange(2)));
  const auto unknown =
      list_dataset({{{"targets", torch::tensor(7)}}, {{"targets", torch::tensor(8)}}});
  EXPECT_FALSE(merge({known, unknown})->column("targets").defined());
  EXPECT_THAT(labels_of(*merge({known, unknown})), testing::ElementsAre(7, 8));
}

TEST(Merge, RefusesWhatDoesNotFit) {
  EXPECT_THROW(merge({}), ConfigError);
  EXPECT_THROW(merge({nullptr}), ConfigError);
  EXPECT_THROW(
      merge({tensor_dataset({{"x", torch::arange(4)}}), tensor_dataset({{"y", torch::arange(5)}})}),
      DataError);
}

// The first sample may be on another host.
TEST(Merge, LooksOnlyAtSamplesThatAreHere) {
  const auto known = tensor_dataset({{"targets", torch::arange(6)}});
  const auto second =
      partitioned({.parts = 2, .here = {{1, tensor_dataset({{"x", torch::arange(3)}})}}});
  const auto merged = merge({known, second});
  EXPECT_TRUE(merged->column("targets").equal(torch::arange(6)));
  EXPECT_THAT(merged->examples(2), testing::ElementsAre(3, 4));
}

struct ScaledPairs : ScaledDataset {
  std::int64_t size() const override { return 2; }
  Batch sample(std::int64_t) const override {
    return {{"features", torch::ones({1, 1})}, {"targets", torch::ones({1, 1})}};
  }
  std::vector<std::string> class_names() const override { return {"cat", "dog"}; }
  const Scaling& scaling() const override { return own; }
  ChannelScaling tens{.kind = Normalization::kStandard, .shift = {0}, .scale = {10}};
  Scaling own{.features = tens, .targets = tens};
};

TEST(Merge, ScalingAndClassesAreThoseOfTheLastThatHasTheKey) {
  const auto scaled = std::make_shared<ScaledPairs>();
  const auto other_targets = tensor_dataset({{"targets", torch::arange(2)}});
  const auto replaced = merge({scaled, other_targets});
  EXPECT_EQ(scaling_of(*replaced), Scaling{.features = scaled->tens});
  EXPECT_TRUE(replaced->class_names().empty());
  const auto extended = merge({scaled, tensor_dataset({{"x", torch::arange(2)}})});
  EXPECT_EQ(scaling_of(*extended), scaled->own);
  EXPECT_THAT(extended->class_names(), testing::ElementsAre("cat", "dog"));
}

}  // namespace
}  // namespace lockstep::data
