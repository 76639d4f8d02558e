#include "lockstep/recipe/dataset_tree.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::node;

TEST(DatasetTree, FindsSourcesInEachWayToWriteThem) {
  config::Node dataset = node(
      "{_target_: Subset, count: 2, dataset: {Concat: {datasets: [MNIST, {CIFAR10: {train: "
      "true}}, {_target_: Cached, dataset: {_target_: Noise, shape: 2}}]}}}");
  const auto sources = sources_of(dataset);
  ASSERT_EQ(sources.size(), 3U);
  EXPECT_EQ(sources[0].target, "MNIST");
  EXPECT_EQ(sources[0].find("train"), nullptr);
  EXPECT_EQ(sources[1].target, "CIFAR10");
  EXPECT_EQ(sources[1].find("train")->text(), "true");
  EXPECT_EQ(sources[2].target, "Noise");
  sources[2].options->set("samples", config::Node::scalar("5", true));
  EXPECT_THAT(config::to_yaml(dataset), ::testing::HasSubstr("samples: 5"));
}

TEST(MadeDatasets, AreMadeOnceAlsoInsideOfOthers) {
  const config::Node noise = node("{Noise: {samples: 4, shape: 2}}");
  const config::Node subset =
      node("{Subset: {count: 1, dataset: {Noise: {samples: 4, shape: 2}}}}");
  {
    const MadeDatasets made;
    const data::DatasetPtr part = make_dataset(subset);
    EXPECT_EQ(made.find(subset), part);
    ASSERT_NE(made.find(noise), nullptr);
    EXPECT_EQ(make_dataset(noise), made.find(noise));
    EXPECT_EQ(made.find(node("{Noise: {samples: 5, shape: 2}}")), nullptr);
  }
  EXPECT_NE(make_dataset(noise), make_dataset(noise));
}

TEST(MadeDatasets, MayEndInAnyOrder) {
  const config::Node noise = node("{Noise: {samples: 4, shape: 2}}");
  auto outer = std::make_unique<MadeDatasets>();
  auto inner = std::make_unique<MadeDatasets>();
  outer.reset();
  const data::DatasetPtr made = make_dataset(noise);
  EXPECT_EQ(inner->find(noise), made);
  inner.reset();
  EXPECT_NE(make_dataset(noise), make_dataset(noise));
}

}  // namespace
}  // namespace lockstep::recipe
