#include "lockstep/data/concat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/labels.h"
#include "lockstep/data/list_dataset.h"
#include "lockstep/data/scaling.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

DatasetPtr range_of(std::int64_t first, std::int64_t end) {
  return tensor_dataset({{"x", torch::arange(first, end)}});
}

TEST(Concat, NumbersTheSamplesOneAfterTheOther) {
  const auto all = concat({range_of(0, 3), range_of(3, 3), range_of(3, 10)});
  EXPECT_EQ(all->size(), 10);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(all->sample(i)["x"].item<std::int64_t>(), i);
  for (const Indices& indices : {Indices{8, 1, 3, 0, 3, 9, 2}, Indices{1, 0}, Indices{9, 4}}) {
    EXPECT_TRUE(all->gather(indices, {})["x"].equal(torch::tensor(indices, torch::kInt64)));
  }
  EXPECT_EQ(all->gather(Indices(), {})["x"].numel(), 0);
  EXPECT_EQ(all->name_of(4), "sample 1 of data set 2");
  EXPECT_THROW(all->sample(10), DataError);
  EXPECT_THROW(all->gather(Indices{0, -1}, {}), DataError);
}

TEST(Concat, UsesMemoryAgain) {
  const auto all = concat({range_of(0, 3), range_of(3, 10)});
  for (const Indices& indices : {Indices{0, 1}, Indices{0, 5}}) {
    const Batch old = all->gather(indices, {});
    const void* const memory = old["x"].data_ptr();
    EXPECT_EQ(all->gather(indices, old)["x"].data_ptr(), memory);
  }
}

// Samples have a nested batch. Batches also have a list, and are counted.
struct Nested : Dataset {
  std::int64_t size() const override { return 2; }
  Batch sample(std::int64_t index) const override {
    ++reads;
    Batch sample{{"x", torch::tensor(index)}};
    sample.set("meta", Batch{{"angle", torch::tensor(index * 10)}});
    return sample;
  }
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override {
    Batch batch = Dataset::gather(indices, std::move(reuse));
    Batch::List boxes;
    for (const std::int64_t index : indices) boxes.push_back(torch::zeros({index + 1}));
    if (lists_too_many) boxes.emplace_back();
    batch.set("boxes", std::move(boxes));
    return batch;
  }
  bool lists_too_many = false;
  mutable int reads = 0;
};

TEST(Concat, ListsAndNestedBatchesAreJoinedWithoutReadingTwice) {
  const auto first = std::make_shared<Nested>();
  const auto second = std::make_shared<Nested>();
  const auto all = concat({first, second});
  const Indices indices = {3, 0, 2};
  const Batch batch = all->gather(indices, {});
  EXPECT_TRUE(batch["x"].equal(torch::tensor({1, 0, 0}, torch::kInt64)));
  EXPECT_TRUE(batch.nested("meta")["angle"].equal(torch::tensor({10, 0, 0}, torch::kInt64)));
  ASSERT_EQ(batch.list("boxes").size(), 3u);
  EXPECT_EQ(batch.list("boxes")[0].numel(), 2);
  EXPECT_EQ(batch.list("boxes")[1].numel(), 1);
  EXPECT_EQ(first->reads + second->reads, 3);
  const Batch again = all->gather(indices, batch);
  EXPECT_TRUE(again.nested("meta")["angle"].is_same(batch.nested("meta")["angle"]))
      << "memory is used again";
  second->lists_too_many = true;
  EXPECT_THAT(error_text<DataError>([&] { all->gather(indices, {}); }),
              HasSubstr("'boxes': expected 2 values, one per sample, in a batch of data set 1"));
}

// Twice the same data set must not give the same random crops twice.
TEST(Concat, TheSameDataSetTwiceDrawsOtherNumbers) {
  struct Draws : RandomDataset {
    std::int64_t size() const override { return 5; }
    Batch sample(SampleContext& context) const override {
      return {{"x", torch::tensor(context.random.uniform(), torch::kFloat64)}};
    }
  };
  const auto drawn = std::make_shared<Draws>();
  const auto all = concat({drawn, drawn});
  const EpochKey key{.seed = 3, .epoch = 2};
  const auto x = [&](std::int64_t index, const EpochKey& at) {
    return all->sample_in_epoch(index, at)["x"].item<double>();
  };
  EXPECT_EQ(x(1, key), drawn->sample_in_epoch(1, key)["x"].item<double>());
  EXPECT_NE(x(1, key), x(6, key));
  EXPECT_NE(x(6, key), x(6, {.seed = 3, .epoch = 3}));
  EXPECT_NE(x(6, key), x(6, {.seed = 4, .epoch = 2}));
  const Batch batch = all->gather_in_epoch(Indices{6, 1}, key, {});
  EXPECT_EQ(batch["x"][0].item<double>(), x(6, key)) << "alone or in a batch";
  EXPECT_EQ(batch["x"][1].item<double>(), x(1, key));
}

TEST(Concat, TellsItsColumns) {
  const auto two = concat({range_of(0, 2), range_of(5, 7)});
  EXPECT_THAT(labels_of(*two, "x"), ElementsAre(0, 1, 5, 6));
  EXPECT_TRUE(two->column("x").defined());
  const auto mixed = concat({range_of(0, 2), list_dataset({{{"x", torch::tensor(4)}}})});
  EXPECT_FALSE(mixed->column("x").defined());
  EXPECT_THAT(labels_of(*mixed, "x"), ElementsAre(0, 1, 4));
}

TEST(Concat, RefusesWhatDoesNotFit) {
  EXPECT_THROW(concat({}), ConfigError);
  EXPECT_THROW(concat({range_of(0, 2), nullptr}), ConfigError);
  const auto error = [](const DatasetPtr& other) {
    return error_text<DataError>([&] {
      concat({range_of(0, 2), other})->gather(Indices{0, 2}, {});
    });
  };
  EXPECT_THAT(error(tensor_dataset({{"y", torch::arange(2)}})),
              AllOf(HasSubstr("data set 0 has x"), HasSubstr("data set 1 has y")));
  EXPECT_THAT(error(tensor_dataset({{"x", torch::zeros({2, 3}, torch::kInt64)}})),
              AllOf(HasSubstr("'x'"), HasSubstr("Long [1, 3]")));
  EXPECT_THAT(error(tensor_dataset({{"x", torch::zeros({2})}})), HasSubstr("Float [1]"));
}

struct Classes : Dataset {
  explicit Classes(std::vector<std::string> all) : names(std::move(all)) {}
  std::int64_t size() const override { return 1; }
  Batch sample(std::int64_t) const override { return {{"targets", torch::tensor(0)}}; }
  std::vector<std::string> class_names() const override { return names; }
  std::vector<std::string> names;
};

TEST(Concat, HasClassesIfAllAgree) {
  const auto pets = std::make_shared<Classes>(std::vector<std::string>{"cat", "dog"});
  const auto others = std::make_shared<Classes>(std::vector<std::string>{"dog", "fox"});
  EXPECT_THAT(concat({pets, pets})->class_names(), ElementsAre("cat", "dog"));
  EXPECT_TRUE(concat({pets, others})->class_names().empty());
  EXPECT_TRUE(concat({pets, range_of(0, 2)})->class_names().empty());
}

struct ScaledTargets : ScaledDataset {
  explicit ScaledTargets(double scale)
      : own{.targets = {.kind = Normalization::kStandard, .shift = {0}, .scale = {scale}}} {}
  std::int64_t size() const override { return 1; }
  Batch sample(std::int64_t) const override { return {{"targets", torch::ones({1, 1})}}; }
  const Scaling& scaling() const override { return own; }
  Scaling own;
};

TEST(Concat, IsScaledIfAllAreInTheSameWay) {
  const auto tens = std::make_shared<ScaledTargets>(10);
  EXPECT_EQ(scaling_of(*concat({tens, std::make_shared<ScaledTargets>(10)})), tens->own);
  const auto mixed = concat({tens, std::make_shared<ScaledTargets>(20)});
  EXPECT_THAT(error_text<DataError>([&] { scaling_of(*mixed); }),
              AllOf(HasSubstr("scale [10]"), HasSubstr("data set 1"), HasSubstr("scale [20]")));
}

}  // namespace
}  // namespace lockstep::data
