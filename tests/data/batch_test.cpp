#include "lockstep/data/batch.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Batch, KeepsTheOrderOfItsKeys) {
  Batch batch{{"features", torch::zeros({3, 2})}, {"targets", torch::ones({3})}};
  batch.set("logits", torch::zeros({3, 10}));
  EXPECT_THAT(batch.keys(), ElementsAre("features", "targets", "logits"));
  EXPECT_EQ(batch.size(), 3);
}

TEST(Batch, ReplacesInPlace) {
  Batch batch{{"features", torch::zeros({3})}, {"targets", torch::zeros({3})}};
  batch.set("features", torch::ones({3}));
  EXPECT_THAT(batch.keys(), ElementsAre("features", "targets"));
  EXPECT_EQ(batch["features"].sum().item<float>(), 3);
}

TEST(Batch, ForgetsAKey) {
  Batch batch{{"features", torch::zeros({3})}, {"loss", torch::zeros({})}};
  batch.erase("loss");
  batch.erase("loss");
  EXPECT_THAT(batch.keys(), ElementsAre("features"));
}

TEST(Batch, ErasesAValueOfAnyKind) {
  Batch batch{{"features", torch::zeros({1})}};
  batch.set("boxes", Batch::List{torch::zeros({2})});
  batch.set("meta", Batch{{"angle", torch::zeros({1})}});
  batch.erase("boxes");
  batch.erase("meta");
  EXPECT_THAT(batch.keys(), ElementsAre("features"));
}

TEST(Batch, NamesTheNearestKey) {
  const Batch batch{{"features", torch::zeros({3})}, {"targets", torch::zeros({3})}};
  EXPECT_FALSE(batch.contains("target"));
  EXPECT_THAT(error_text<ConfigError>([&] { batch["target"]; }),
              HasSubstr("no 'target' in the batch; did you mean 'targets'?"));
}

TEST(Batch, WithoutRowsHasNoSize) {
  EXPECT_EQ(Batch().size(), 0);
  EXPECT_TRUE(Batch().empty());
  EXPECT_EQ((Batch{{"loss", torch::tensor(1.0)}}).size(), 0);
}

TEST(Batch, MovesToADeviceAsACopyOfTheBatch) {
  const Batch batch{{"features", torch::ones({2})}};
  EXPECT_TRUE(torch::equal(batch.to(torch::kCPU)["features"], batch["features"]));
}

Batch of_all_kinds() {
  Batch batch{{"features", torch::zeros({2, 3})}};
  batch.set("boxes", std::vector<torch::Tensor>{torch::zeros({1, 4}), torch::ones({5, 4})});
  batch.set("meta", Batch{{"angle", torch::ones({2})}});
  return batch;
}

TEST(Batch, HasListsAndNestedBatches) {
  const Batch batch = of_all_kinds();
  EXPECT_THAT(batch.keys(), ElementsAre("features", "boxes", "meta"));
  EXPECT_EQ(batch.list("boxes")[1].size(0), 5);
  EXPECT_EQ(batch.nested("meta")["angle"].numel(), 2);
  EXPECT_TRUE(batch.contains("boxes"));
  EXPECT_TRUE(batch.contains("meta"));
  std::vector<std::string> tensors;
  for (const auto& [key, tensor] : batch) tensors.push_back(key);
  EXPECT_THAT(tensors, ElementsAre("features"));
}

TEST(Batch, CopiesHaveTheirOwnLists) {
  const Batch original = of_all_kinds();
  Batch copy = original;
  copy.set("boxes", Batch::List{});
  copy.erase("meta");
  EXPECT_EQ(original.list("boxes").size(), 2U);
  EXPECT_TRUE(original.contains("meta"));
  copy = original;
  EXPECT_THAT(copy.keys(), ElementsAre("features", "boxes", "meta"));
  copy = Batch(copy.nested("meta"));
  EXPECT_THAT(copy.keys(), ElementsAre("angle"));
  EXPECT_TRUE(copy.lists().empty());
}

TEST(Batch, ABatchThatWasMovedFromIsEmpty) {
  Batch batch = of_all_kinds();
  const Batch moved = std::move(batch);
  EXPECT_TRUE(batch.empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_THAT(moved.keys(), ElementsAre("features", "boxes", "meta"));
}

TEST(Batch, NamesTheKindOfAValue) {
  const Batch batch = of_all_kinds();
  EXPECT_EQ(error_text<ConfigError>([&] { batch["boxes"]; }),
            "'boxes' in the batch is a list of 2 tensors, expected a tensor: batch.list(\"boxes\") "
            "returns it");
  EXPECT_THAT(error_text<ConfigError>([&] { batch["meta"]; }),
              HasSubstr("'meta' in the batch is a nested batch, expected a tensor"));
  EXPECT_THAT(error_text<ConfigError>([&] { batch.list("features"); }),
              HasSubstr("'features' in the batch is a tensor, expected a list of tensors"));
  EXPECT_THAT(error_text<ConfigError>([&] { batch.nested("boxes"); }),
              HasSubstr("expected a nested batch"));
  EXPECT_THAT(error_text<ConfigError>([&] { batch.list("boxs"); }),
              HasSubstr("no 'boxs' in the batch; did you mean 'boxes'?"));
}

TEST(Batch, AKeyHasOneValueOfOneKind) {
  Batch batch = of_all_kinds();
  batch.set("boxes", torch::zeros({2}));
  EXPECT_EQ(batch["boxes"].numel(), 2);
  EXPECT_EQ(batch.find_list("boxes"), nullptr);
  batch.set("boxes", Batch());
  EXPECT_EQ(batch.find("boxes"), nullptr);
  batch.set("meta", std::vector<torch::Tensor>());
  EXPECT_EQ(batch.find_nested("meta"), nullptr);
  EXPECT_THAT(batch.keys(), ElementsAre("features", "meta", "boxes"));
}

TEST(Batch, UpdateSetsValuesOfAllKinds) {
  Batch batch{{"features", torch::ones({7})}, {"loss", torch::zeros({})}};
  batch.update(of_all_kinds());
  EXPECT_THAT(batch.keys(), ElementsAre("features", "loss", "boxes", "meta"));
  EXPECT_EQ(batch.size(), 2);
}

TEST(Batch, SizeWithoutTensorsIsThatOfAListOrANestedBatch) {
  Batch lists;
  lists.set("boxes", std::vector<torch::Tensor>{torch::zeros({1}), torch::zeros({2})});
  EXPECT_EQ(lists.size(), 2);
  EXPECT_FALSE(lists.empty());
  Batch nested;
  nested.set("meta", Batch{{"angle", torch::zeros({3})}});
  EXPECT_EQ(nested.size(), 3);
  EXPECT_FALSE(nested.empty());
}

// The device without data shows that a tensor was moved.
TEST(Batch, MovesValuesOfAllKinds) {
  const Batch moved = of_all_kinds().to(torch::kMeta);
  EXPECT_TRUE(moved["features"].is_meta());
  for (const torch::Tensor& box : moved.list("boxes")) EXPECT_TRUE(box.is_meta());
  EXPECT_TRUE(moved.nested("meta")["angle"].is_meta());
}

}  // namespace
}  // namespace lockstep
