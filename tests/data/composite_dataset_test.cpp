#include "lockstep/data/composite_dataset.h"

#include <map>
#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/cache.h"
#include "lockstep/data/concat.h"
#include "lockstep/data/iterable_dataset.h"
#include "lockstep/data/labels.h"
#include "lockstep/data/merge.h"
#include "lockstep/data/partitioned.h"
#include "lockstep/data/scaling.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/transformed.h"
#include "tests/data/error_text.h"
#include "tests/data/toy_transforms.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

// Knows everything that a data set can tell. Its first two samples are on another host.
class Known : public Dataset {
 public:
  explicit Known(bool is_random) : is_random_(is_random) {}

  std::int64_t size() const override { return 4; }
  Batch sample(std::int64_t index) const override {
    if (!is_here(index)) throw DataError("was read");
    return {{"features", torch::full({1, 2}, static_cast<double>(index))},
            {"targets", torch::tensor(index % 2)}};
  }
  bool is_random() const override { return is_random_; }
  std::string name_of(std::int64_t index) const override { return fmt::format("known {}", index); }
  std::vector<std::string> class_names() const override { return {"cat", "dog"}; }
  torch::Tensor column(std::string_view key) const override {
    return key == "targets" ? torch::tensor({0, 1, 0, 1}, torch::kInt64) : torch::Tensor();
  }
  bool is_here(std::int64_t index) const override { return index >= 2; }
  const Scaling& scaling() const override { return scaling_; }

 private:
  bool is_random_;
  ChannelScaling tenths_{.kind = Normalization::kStandard, .shift = {1}, .scale = {10}};
  Scaling scaling_{.features = tenths_, .targets = tenths_};
};

class Plain : public WrapperDataset {
 public:
  explicit Plain(DatasetPtr dataset) : WrapperDataset("Plain", std::move(dataset)) {}
};

std::map<std::string, DatasetPtr> around(const DatasetPtr& inner) {
  std::map<std::string, DatasetPtr> all = {
      {"a new wrapper", std::make_shared<Plain>(inner)},
      {"Subset", std::make_shared<Subset>(inner, Indices{0, 1, 2, 3})},
      {"transformed", transformed(inner, {.transform = Reverse()})},
      {"concat", concat({inner})},
      {"merge", merge({inner})},
      {"partitioned", partitioned({.here = {{0, inner}}})}};
  if (!inner->is_random()) all.emplace("cached", cached(inner));
  return all;
}

TEST(CompositeDataset, TellsWhatTheDataSetInsideKnows) {
  for (const bool is_random : {false, true}) {
    const DatasetPtr inner = std::make_shared<Known>(is_random);
    for (const auto& [name, dataset] : around(inner)) {
      SCOPED_TRACE(name);
      EXPECT_EQ(dataset->size(), 4);
      EXPECT_EQ(dataset->is_random(), is_random);
      EXPECT_EQ(dataset->random_layers(), is_random ? 1u : 0u);
      EXPECT_THAT(dataset->name_of(3), HasSubstr("known 3"));
      EXPECT_THAT(dataset->class_names(), ElementsAre("cat", "dog"));
      EXPECT_THAT(labels_of(*dataset), ElementsAre(0, 1, 0, 1)) << "without reading samples";
      EXPECT_FALSE(dataset->is_here(1));
      EXPECT_TRUE(dataset->is_here(2));
      EXPECT_THAT(dataset->examples(1), ElementsAre(2));
      EXPECT_THAT(dataset->examples(9), ElementsAre(2, 3));
      EXPECT_EQ(scaling_of(*dataset), inner->scaling());
      EXPECT_THAT(dataset->parts(), ElementsAre(inner));
      EXPECT_EQ(dataset->sample(3)["targets"].item<std::int64_t>(), 1);
    }
    EXPECT_TRUE(inner->parts().empty());
  }
}

// The example in composite_dataset.h.
class Doubled : public WrapperDataset {
 public:
  explicit Doubled(DatasetPtr dataset) : WrapperDataset("Doubled", std::move(dataset)) {}
  Batch sample_in_epoch(std::int64_t index, const EpochKey& key) const override {
    Batch sample = inner().sample_in_epoch(index, key);
    sample.set("features", sample["features"] * 2);
    return sample;
  }
  torch::Tensor column(std::string_view key) const override {
    return key == "features" ? torch::Tensor() : WrapperDataset::column(key);
  }
};

struct Epochs : RandomDataset {
  std::int64_t size() const override { return 4; }
  Batch sample(SampleContext& context) const override {
    return {{"features", torch::tensor(context.epoch)}};
  }
};

TEST(CompositeDataset, OverridingTheSampleIsEnough) {
  const Doubled doubled(std::make_shared<Epochs>());
  const Indices indices = {1, 2};
  EXPECT_EQ(doubled.sample(1)["features"].item<std::int64_t>(), 2) << "the first epoch";
  EXPECT_TRUE(doubled.gather_in_epoch(indices, {.epoch = 7}, {})["features"].equal(
      torch::tensor({14, 14}, torch::kInt64)));
  EXPECT_TRUE(doubled.gather(indices, {})["features"].equal(torch::tensor({2, 2}, torch::kInt64)));
}

TEST(CompositeDataset, RefusesAStreamAndSaysWhatToDo) {
  struct Stream : IterableDataset {
    std::unique_ptr<SampleSource> open(const StreamPart&) const override { return nullptr; }
    std::optional<std::int64_t> samples() const override { return 3; }
  };
  const auto stream = std::make_shared<Stream>();
  const auto advice = [](const std::string& name) {
    return AllOf(HasSubstr(name + ": "), HasSubstr("give the stream itself to the loader"));
  };
  EXPECT_THAT(error_text<ConfigError>([&] { Subset(stream, {0}); }), advice("Subset"));
  EXPECT_THAT(error_text<ConfigError>([&] { cached(stream); }), advice("Cached"));
  EXPECT_THAT(error_text<ConfigError>([&] { transformed(stream, {.transform = Reverse()}); }),
              advice("Transformed"));
  EXPECT_THAT(error_text<ConfigError>([&] { concat({stream}); }), advice("concat"));
  EXPECT_THAT(error_text<ConfigError>([&] { merge({stream}); }), advice("merge"));
}

TEST(CompositeDataset, RefusesWhatIsNotThere) {
  EXPECT_EQ(error_text<ConfigError>([] { Plain(nullptr); }),
            "Plain: expected a data set, got a null pointer");
  EXPECT_EQ(error_text<ConfigError>([] {
              concat({std::make_shared<Epochs>(), nullptr});
            }),
            "concat: expected a data set, got a null pointer (data set 1)");
}

TEST(CompositeDataset, LayersHaveKeysOfTheirOwn) {
  const EpochKey key{.seed = 5, .epoch = 3};
  EXPECT_EQ(key_of_layer(key, 0).seed, key.seed) << "the innermost layer draws as if it were alone";
  EXPECT_NE(key_of_layer(key, 1).seed, key.seed);
  EXPECT_NE(key_of_layer(key, 1).seed, key_of_layer(key, 2).seed);
  EXPECT_EQ(key_of_layer(key, 2).epoch, 3);
}

}  // namespace
}  // namespace lockstep::data
