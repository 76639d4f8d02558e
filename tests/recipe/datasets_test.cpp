#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Datasets, ASubsetCountsFromEitherEnd) {
  const std::string noise = "{_target_: Noise, samples: 10, shape: 2, seed: 1}";
  const auto all = targets().datasets.make(node(noise));
  const auto last = targets().datasets.make(node("{Subset: {dataset: " + noise + ", first: -3}}"));
  EXPECT_EQ(last->size(), 3);
  EXPECT_TRUE(last->sample(0)["features"].equal(all->sample(7)["features"]));
  const auto some =
      targets().datasets.make(node("{Subset: {dataset: " + noise + ", first: 2, count: 4}}"));
  EXPECT_EQ(some->size(), 4);
  EXPECT_THAT(
      error_of([&] {
        targets().datasets.make(node("{Subset: {dataset: " + noise + ", first: 9, count: 4}}"));
      }),
      HasSubstr("it/Subset/count: expected 1 to 1 from sample 9 on, got 4"));
}

TEST(Datasets, AMissingFolderIsFoundAtItsLine) {
  EXPECT_THAT(error_of([] { targets().datasets.make(node("{MNIST: {root: nowhere}}")); }),
              HasSubstr("a.yml:1: it"));
}

TEST(Samplers, AreMadeForTheDataSet) {
  const auto random = targets().samplers.make(node("{RandomSampler: {seed: 3}}"), 5);
  EXPECT_EQ(random->size(), 5);
  EXPECT_EQ(random->indices(1), data::RandomSampler(5, {.seed = 3}).indices(1));
  EXPECT_THAT(targets().samplers.make(node("SequentialSampler"), 3)->indices(1),
              ElementsAre(0, 1, 2));
  EXPECT_EQ(targets().samplers.make(node("{DistributedSampler: {num_replicas: 2}}"), 5)->size(), 3);
}

TEST(Transforms, GaussianNoiseIsAddedAndDiffersEachTime) {
  const auto noise = targets().transforms.make(node("{GaussianNoise: {std: 0.5}}"));
  torch::manual_seed(1);
  const auto first = noise.apply(torch::ones({1000}));
  EXPECT_NEAR(first.mean().item<double>(), 1, 0.1);
  EXPECT_NEAR(first.std().item<double>(), 0.5, 0.1);
  EXPECT_FALSE(first.equal(noise.apply(torch::ones({1000}))));
  EXPECT_THAT(error_of([] { targets().transforms.make(node("{GaussianNoise: {std: 0}}")); }),
              HasSubstr("std"));
}

TEST(Transforms, FlattenMakesRows) {
  EXPECT_EQ(targets().transforms.make(node("Flatten")).apply(torch::ones({2, 3, 4})).sizes(),
            torch::IntArrayRef({2, 12}));
}

TEST(Collates, AreMadeByName) {
  const auto name = [](const std::string& text) {
    return targets().collates.make(node(text)).name();
  };
  EXPECT_EQ(name("stack"), "stack");
  EXPECT_EQ(name("pad"), data::pad().name());
  EXPECT_EQ(name("{pad: {keys: [a], values: {a: -100}, mask_suffix: _mask}}"),
            data::pad({.keys = {"a"}, .values = {{"a", -100}}, .mask_suffix = "_mask"}).name());
  EXPECT_EQ(name("{lists: {keys: [a, b]}}"), "lists(a, b)");
}

}  // namespace
}  // namespace lockstep::recipe
