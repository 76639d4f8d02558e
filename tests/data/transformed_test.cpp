#include "lockstep/data/transformed.h"

#include <cmath>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/cache.h"
#include "lockstep/data/collate.h"
#include "lockstep/data/composite_dataset.h"
#include "lockstep/data/concat.h"
#include "lockstep/data/merge.h"
#include "lockstep/data/subset.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"
#include "tests/data/toy_transforms.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::int64_t> kChosen = {3, 0, 5};
constexpr EpochKey kSecondEpoch{.seed = 9, .epoch = 2};

// Signals of 20 values, with the same values as a mask.
DatasetPtr signals() {
  const torch::Tensor values = torch::arange(160, torch::kFloat32).view({8, 20});
  return tensor_dataset({{"id", torch::arange(8)},
                         {"features", values},
                         {"mask", values.to(torch::kInt64)},
                         {"targets", torch::arange(8)}});
}

TEST(Transformed, ChangesTheKeysAndKeepsTheRest) {
  const auto dataset = transformed(signals(), {.transform = RandomPart(5)});
  EXPECT_EQ(dataset->size(), 8);
  const Batch batch = dataset->gather_in_epoch(kChosen, kSecondEpoch, {});
  EXPECT_THAT(batch.keys(), ElementsAre("id", "features", "mask", "targets"));
  EXPECT_EQ(batch["features"].sizes(), (torch::IntArrayRef{3, 5}));
  EXPECT_EQ(batch["mask"].sizes(), (torch::IntArrayRef{3, 20}));
  EXPECT_TRUE(torch::equal(batch["targets"], torch::tensor(kChosen, torch::kInt64)));
}

TEST(Transformed, MovesMasksWithTheImage) {
  const auto dataset = transformed(
      signals(), {.transform = Compose({RandomOffset(), RandomPart(5)}), .masks = {"mask"}});
  const Batch batch = dataset->gather_in_epoch(kChosen, kSecondEpoch, {});
  EXPECT_EQ(batch["mask"].scalar_type(), torch::kInt64);
  EXPECT_TRUE(torch::equal(batch["features"].floor().to(torch::kInt64), batch["mask"]));
  EXPECT_FALSE(torch::equal(batch["features"], batch["mask"].to(torch::kFloat32)));
}

TEST(Transformed, DrawsTheSameForAllKeys) {
  const torch::Tensor values = torch::rand({8, 20});
  const auto dataset = transformed(tensor_dataset({{"left", values}, {"right", values}}),
                                   {.transform = RandomPart(5), .keys = {"left", "right"}});
  const Batch batch = dataset->gather_in_epoch(kChosen, kSecondEpoch, {});
  EXPECT_TRUE(torch::equal(batch["left"], batch["right"]));
}

TEST(Transformed, SamplesAreRowsOfBatches) {
  const auto twice = Lambda([](const torch::Tensor& batch) { return batch * 2; });
  for (const TransformPtr& transform :
       std::vector<TransformPtr>{Compose({RandomPart(5), twice}), twice}) {
    const auto dataset = transformed(
        signals(), {.transform = transform, .masks = {"mask"}, .target_transform = twice});
    const Batch batch = dataset->gather_in_epoch(kChosen, kSecondEpoch, {});
    const Batch collated = make_batch(*dataset, stack(), {.indices = kChosen, .key = kSecondEpoch});
    EXPECT_EQ(batch.keys(), collated.keys());
    for (const auto& [key, tensor] : batch) {
      EXPECT_TRUE(torch::equal(tensor, collated[key])) << key;
    }
    EXPECT_TRUE(torch::equal(batch["targets"], torch::tensor(kChosen, torch::kInt64) * 2));
  }
}

TEST(Transformed, DiffersFromEpochToEpoch) {
  const auto dataset = transformed(signals(), {.transform = RandomOffset()});
  const auto features = [&](std::int64_t epoch) {
    return dataset->gather_in_epoch(kChosen, {.epoch = epoch}, {})["features"];
  };
  EXPECT_TRUE(torch::equal(features(1), features(1)));
  EXPECT_FALSE(torch::equal(features(1), features(2)));
  EXPECT_TRUE(torch::equal(features(1), dataset->gather(kChosen, {})["features"]));
}

// Two offsets by the same numbers would be one offset, doubled.
TEST(Transformed, LayersDrawIndependently) {
  const auto once = transformed(signals(), {.transform = RandomOffset()});
  const auto twice = transformed(once, {.transform = RandomOffset()});
  const Batch plain = signals()->sample(3);
  const double first = (once->sample(3)["features"] - plain["features"])[0].item<double>();
  const double both = (twice->sample(3)["features"] - plain["features"])[0].item<double>();
  EXPECT_GT(std::abs(both - 2 * first), 1e-3);
}

TEST(Transformed, ConvertsBytesAsTheTransformDoes) {
  const torch::Tensor images = torch::randint(0, 256, {8, 9, 11, 3}, torch::kUInt8);
  const TransformPtr batch_steps = Compose({ToTensor(), Normalize({.mean = {0.5}, .std = {0.25}})});
  const auto dataset = transformed(tensor_dataset({{"features", images}}),
                                   {.transform = Compose({Reverse(), batch_steps})});
  const torch::Tensor chosen =
      images.index_select(0, torch::tensor(kChosen, torch::kInt64)).flip(1);
  EXPECT_TRUE(torch::equal(dataset->gather(kChosen, {})["features"], batch_steps.apply(chosen)));
}

// Samples may differ in size until they are cropped.
class Growing : public Dataset {
 public:
  std::int64_t size() const override { return 8; }
  Batch sample(std::int64_t index) const override {
    return {{"features", torch::arange(index + 1)}};
  }
  std::string name_of(std::int64_t index) const override {
    return fmt::format("sample {} ({}.txt)", index, index);
  }
};

TEST(Transformed, TakesSamplesOfDifferentSizes) {
  const auto dataset =
      transformed(std::make_shared<Growing>(), {.transform = Compose({RandomPart(1)})});
  EXPECT_EQ(dataset->gather(kChosen, {})["features"].sizes(), (torch::IntArrayRef{3, 1}));
  EXPECT_EQ(dataset->name_of(2), "sample 2 (2.txt)");
  const auto longer = transformed(std::make_shared<Growing>(), {.transform = RandomPart(3)});
  EXPECT_EQ(error_text<DataError>([&] { longer->gather(kChosen, {}); }),
            "sample 0 (0.txt): 'features': RandomPart: too short");
  const auto uneven = transformed(std::make_shared<Growing>(), {.transform = Reverse()});
  EXPECT_THAT(error_text<DataError>([&] { uneven->gather(kChosen, {}); }),
              HasSubstr("sample 0 (0.txt): 'features': Long [1], but that of the first sample"));
}

TEST(Transformed, IsRandomIfAPartIs) {
  EXPECT_FALSE(transformed(signals(), {.transform = Reverse()})->is_random());
  EXPECT_TRUE(transformed(signals(), {.transform = RandomPart(2)})->is_random());
  const auto random = transformed(signals(), {.transform = RandomPart(2)});
  EXPECT_TRUE(transformed(random, {.transform = Reverse()})->is_random());
  EXPECT_TRUE(Subset(random, {1}).is_random());
  EXPECT_TRUE(tensor_dataset({{"x", torch::rand({3, 4}), RandomPart(2)}})->is_random());
  EXPECT_FALSE(tensor_dataset({{"x", torch::rand({3, 4}), Reverse()}})->is_random());
}

TEST(Transformed, WithoutATargetTransformItIsTheDataSetItself) {
  const DatasetPtr data = signals();
  EXPECT_EQ(with_target_transform(data, {}), data);
  EXPECT_NE(with_target_transform(data, Reverse()), data);
}

TEST(Transformed, RefusesWhatMakesNoSense) {
  const auto refusal_of = [](const TransformedOptions& options) {
    return error_text<ConfigError>([&] { transformed(signals(), options); });
  };
  EXPECT_THAT(refusal_of({}), HasSubstr("expected a transform or a target_transform"));
  EXPECT_THAT(refusal_of({.transform = Reverse(), .keys = {}}), HasSubstr("keys: expected"));
  EXPECT_THAT(refusal_of({.masks = {"mask"}, .target_transform = Reverse()}),
              HasSubstr("a transform that moves 'mask'"));
  EXPECT_THAT(refusal_of({.transform = Reverse(), .masks = {"features"}}),
              HasSubstr("got 'features' twice"));
  EXPECT_THROW(transformed(nullptr, {.transform = Reverse()}), ConfigError);
  const auto missing = transformed(signals(), {.transform = Reverse(), .keys = {"feature"}});
  EXPECT_THAT(error_text<DataError>([&] { missing->gather(kChosen, {}); }),
              HasSubstr("no tensor 'feature' in the samples; did you mean 'features'?"));
}

// The sum of the offsets that all layers add to a sample.
double offset_of(const DatasetPtr& dataset) {
  return dataset->sample(3)["features"][0].item<double>();
}

double offset_of_layers(const std::vector<std::uint64_t>& layers) {
  double sum = 0;
  for (const std::uint64_t layer : layers)
    sum += SampleRandom(key_of_layer({}, layer), 3).uniform();
  return sum;
}

// Equal numbers in two layers would be one offset, doubled.
TEST(Transformed, LayersAreCountedThroughOtherDataSets) {
  const auto zeros = tensor_dataset({{"features", torch::zeros({4, 1}, torch::kFloat64)}});
  const auto with_offset = [](const DatasetPtr& dataset) {
    return transformed(dataset, {.transform = RandomOffset()});
  };
  const auto reversed = [](const DatasetPtr& dataset) {
    return transformed(dataset, {.transform = Reverse()});
  };
  const auto all_of = [](const DatasetPtr& dataset) {
    return std::make_shared<const Subset>(dataset, std::vector<std::int64_t>{0, 1, 2, 3});
  };
  const auto once = with_offset(zeros);
  const auto twice = with_offset(once);
  EXPECT_DOUBLE_EQ(offset_of(once), offset_of_layers({0}));
  EXPECT_DOUBLE_EQ(offset_of(twice), offset_of_layers({0, 1}));
  EXPECT_DOUBLE_EQ(offset_of(with_offset(reversed(zeros))), offset_of_layers({1}));
  EXPECT_DOUBLE_EQ(offset_of(with_offset(cached(reversed(zeros)))), offset_of_layers({0}));
  for (const DatasetPtr& around : {DatasetPtr(all_of(once)), concat({once}), merge({once})}) {
    EXPECT_DOUBLE_EQ(offset_of(with_offset(around)), offset_of_layers({0, 1}));
    EXPECT_DOUBLE_EQ(offset_of(with_offset(all_of(with_offset(around)))),
                     offset_of_layers({0, 1, 2}));
  }
  EXPECT_DOUBLE_EQ(offset_of(with_offset(all_of(twice))), offset_of_layers({0, 1, 2}));
  EXPECT_DOUBLE_EQ(offset_of(with_offset(all_of(reversed(once)))), offset_of_layers({0, 1}));
}

TEST(Transformed, KnowsColumnsThatItDoesNotChange) {
  const auto plus_one = Lambda([](const torch::Tensor& batch) { return batch + 1; });
  const auto column = [](const TransformedOptions& options, std::string_view key) {
    return transformed(signals(), options)->column(key);
  };
  EXPECT_TRUE(column({.transform = RandomPart(5)}, "targets").equal(torch::arange(8)));
  EXPECT_FALSE(column({.transform = RandomPart(5)}, "features").defined());
  EXPECT_FALSE(column({.transform = RandomPart(5), .masks = {"mask"}}, "mask").defined());
  EXPECT_TRUE(
      column({.transform = plus_one, .masks = {"mask"}}, "mask").equal(signals()->column("mask")))
      << "steps for batches are left out for a mask";
  EXPECT_TRUE(column({.target_transform = plus_one}, "targets").equal(torch::arange(8) + 1))
      << "as the samples have it";
}

TEST(Transformed, ForgetsTheNamesOfClassesThatItChanges) {
  struct Named : Growing {
    std::vector<std::string> class_names() const override { return {"cat", "dog"}; }
  };
  const auto names = [](const TransformedOptions& options) {
    return transformed(std::make_shared<Named>(), options)->class_names();
  };
  EXPECT_THAT(names({.transform = Reverse()}), ElementsAre("cat", "dog"));
  EXPECT_THAT(names({.transform = Reverse(), .masks = {"targets"}}), ElementsAre("cat", "dog"));
  EXPECT_TRUE(names({.target_transform = Reverse()}).empty());
}

TEST(Transformed, RefusesAMaskOfAnotherSize) {
  const auto refusal_of = [](std::vector<std::int64_t> image, std::vector<std::int64_t> mask,
                             std::vector<std::string> keys = {"features"}) {
    image.insert(image.begin(), 2);
    mask.insert(mask.begin(), 2);
    const auto dataset = transformed(tensor_dataset({{"features", torch::rand(image)},
                                                     {"mask", torch::zeros(mask, torch::kInt64)}}),
                                     {.transform = Reverse(), .keys = keys, .masks = {"mask"}});
    const std::string of_sample = error_text<DataError>([&] { dataset->sample(1); });
    const std::vector<std::int64_t> second = {1};
    const std::string of_batch = error_text<DataError>([&] { dataset->gather(second, {}); });
    EXPECT_THAT(of_batch, HasSubstr(of_sample));
    return of_batch;
  };
  EXPECT_THAT(refusal_of({3, 8, 6}, {4, 3}),
              AllOf(HasSubstr("sample 1"), HasSubstr("'mask' is Long [4, 3]"),
                    HasSubstr("'features' is Float [3, 8, 6]"), HasSubstr("resize the mask")));
  EXPECT_THAT(refusal_of({8, 6}, {8, 5}), HasSubstr("expected a mask of its image's"));
  EXPECT_THAT(refusal_of({8, 6}, {6, 8, 1}), HasSubstr("expected a mask of its image's"));
  // Channels may be anywhere.
  EXPECT_EQ(refusal_of({3, 8, 6}, {8, 6}), "");
  EXPECT_EQ(refusal_of({8, 6, 3}, {8, 6, 1}), "");
  EXPECT_EQ(refusal_of({3, 8, 6}, {8, 6, 1}), "");
  // Signals and volumes have other dimensions, and a mask may be resized alone.
  EXPECT_EQ(refusal_of({8, 6}, {8}), "");
  EXPECT_EQ(refusal_of({1, 8, 6, 5}, {8, 6, 5}), "");
  EXPECT_EQ(refusal_of({3, 8, 6}, {4, 3}, {}), "");
}

}  // namespace
}  // namespace lockstep::data
