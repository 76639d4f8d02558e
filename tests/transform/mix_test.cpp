#include "lockstep/transform/mix.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/error_text.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

Batch four_samples() {
  return {{"features", torch::arange(4, torch::kFloat32).view({4, 1, 1, 1}).expand({4, 2, 8, 8})},
          {"targets", torch::tensor({0, 1, 2, 1})}};
}

SampleRandom numbers_of(std::int64_t sample) {
  return SampleRandom({.seed = 3, .epoch = 1}, sample);
}

TEST(Mixup, MixesFeaturesAndTargetsByTheSamePart) {
  const Mixup mixup({.alpha = 1, .classes = 3});
  double sum = 0;
  for (std::int64_t sample = 0; sample < 300; ++sample) {
    SampleRandom random = numbers_of(sample);
    const Batch batch = mixup(four_samples(), random);
    EXPECT_TRUE(torch::equal(batch["labels"], torch::tensor({0, 1, 2, 1})));
    const torch::Tensor targets = batch["targets"];
    // Sample 1 has class 1 and the feature 1, the one before it has class 0 and the feature 0.
    const double lambda = targets[1][1].item<double>();
    EXPECT_NEAR(targets[1][0].item<double>(), 1 - lambda, 1e-6);
    EXPECT_NEAR(batch["features"][1][0][0][0].item<double>(), lambda, 1e-6);
    // The partner of the first sample is the last one.
    EXPECT_NEAR(batch["features"][0][1][7][7].item<double>(), 3 * (1 - lambda), 1e-5);
    EXPECT_NEAR(targets.sum().item<double>(), 4, 1e-5);
    sum += lambda;
  }
  EXPECT_NEAR(sum / 300, 0.5, 0.06);
}

TEST(Mixup, MixesTargetsThatAreNumbers) {
  SampleRandom random = numbers_of(0);
  const Batch batch =
      Mixup({})({{"features", torch::rand({3, 5})}, {"targets", torch::ones({3, 1})}}, random);
  EXPECT_TRUE(torch::allclose(batch["targets"], torch::ones({3, 1})));
  EXPECT_FALSE(batch.contains("labels"));
}

TEST(Mixup, MayDrawForEachSample) {
  SampleRandom random = numbers_of(0);
  const Batch batch = Mixup({.alpha = 1, .classes = 3, .per_sample = true})(four_samples(), random);
  const torch::Tensor targets = batch["targets"];
  std::set<float> lambdas;
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::int64_t before = (i + 3) % 4;
    const std::int64_t own = four_samples()["targets"][i].item<std::int64_t>();
    const float lambda = targets[i][own].item<float>();
    lambdas.insert(lambda);
    EXPECT_NEAR(batch["features"][i][1][2][3].item<float>(),
                lambda * static_cast<float>(i) + (1 - lambda) * static_cast<float>(before), 1e-5);
    EXPECT_NEAR(targets[i].sum().item<float>(), 1, 1e-6);
  }
  EXPECT_EQ(lambdas.size(), 4U);
}

TEST(Mixup, MayAddTheMixedSamples) {
  for (const bool per_sample : {false, true}) {
    Batch batch = four_samples();
    batch.set("names", torch::tensor({7, 8, 9, 10}));
    SampleRandom random = numbers_of(2);
    const Batch mixed = Mixup({.classes = 3, .per_sample = per_sample})(batch, random);
    random = numbers_of(2);
    const Batch added = Mixup({.classes = 3, .per_sample = per_sample, .add = true})(batch, random);
    ASSERT_EQ(added.size(), 8);
    EXPECT_TRUE(torch::equal(added["features"].narrow(0, 0, 4), batch["features"]));
    EXPECT_TRUE(torch::equal(added["features"].narrow(0, 4, 4), mixed["features"]));
    EXPECT_TRUE(torch::equal(added["targets"].argmax(1).narrow(0, 0, 4), batch["targets"]));
    EXPECT_TRUE(torch::equal(added["targets"].narrow(0, 4, 4), mixed["targets"]));
    for (const char* const key : {"labels", "names"}) {
      EXPECT_TRUE(torch::equal(added[key], torch::cat({mixed[key], mixed[key]}))) << key;
    }
    batch.set("names", torch::tensor(7));
    EXPECT_THAT(error_text<DataError>([&] { Mixup({.classes = 3, .add = true})(batch, random); }),
                HasSubstr("Mixup: add: 'names': expected a tensor with a row for each of 4"));
  }
}

TEST(Mixup, RefusesWhatItCannotMix) {
  SampleRandom random = numbers_of(0);
  EXPECT_THAT(error_text<ConfigError>([&] { Mixup({})(four_samples(), random); }),
              HasSubstr("classes: expected their number, because 'targets' are classes"));
  EXPECT_THAT(error_text<DataError>([&] {
                Mixup({})({{"features", torch::ones({3, 5}, torch::kUInt8)},
                           {"targets", torch::ones({3, 1})}},
                          random);
              }),
              HasSubstr("'features': expected floats, got Byte [3, 5]"));
  EXPECT_THROW(Mixup({.alpha = 0}), ConfigError);
  EXPECT_THROW(Mixup({.classes = 0}), ConfigError);
}

TEST(CutMix, MixesTargetsByArea) {
  const CutMix cutmix({.classes = 3});
  bool mixed = false;
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    SampleRandom random = numbers_of(sample);
    const Batch batch = cutmix(four_samples(), random);
    const torch::Tensor image = batch["features"][1];
    EXPECT_TRUE(((image == 1) | (image == 0)).all().item<bool>());
    const double kept = (image == 1).to(torch::kFloat64).mean().item<double>();
    EXPECT_NEAR(batch["targets"][1][1].item<double>(), kept, 1e-6);
    EXPECT_NEAR(batch["targets"][1][0].item<double>(), 1 - kept, 1e-6);
    mixed = mixed || (kept > 0.1 && kept < 0.9);
  }
  EXPECT_TRUE(mixed);
}

TEST(CutMix, CutsBytesWithChannelsLast) {
  SampleRandom random = numbers_of(1);
  torch::Tensor images = torch::zeros({2, 6, 8, 3}, torch::kUInt8);
  images[1].fill_(1);
  const Batch batch =
      CutMix({.classes = 2})({{"features", images}, {"targets", torch::tensor({0, 1})}}, random);
  // All channels of a pixel come from the same image.
  const torch::Tensor cut = batch["features"][0];
  EXPECT_TRUE(torch::equal(cut.amin(2), cut.amax(2)));
  EXPECT_THROW(
      CutMix({})({{"features", torch::ones({3, 5})}, {"targets", torch::ones({3, 1})}}, random),
      DataError);
  EXPECT_THAT(error_text<DataError>([&] {
                CutMix({})(
                    {{"features", torch::ones({2, 32, 32, 3})}, {"targets", torch::ones({2, 1})}},
                    random);
              }),
              HasSubstr("CutMix: 'features': expected floats with channels first"));
}

TEST(LabelSmoothing, SpreadsAPart) {
  SampleRandom random = numbers_of(0);
  const Batch smooth = LabelSmoothing({.smoothing = 0.3, .classes = 3})(four_samples(), random);
  EXPECT_TRUE(torch::allclose(smooth["targets"][0], torch::tensor({0.8F, 0.1F, 0.1F})));
  EXPECT_TRUE(torch::equal(smooth["labels"], four_samples()["targets"]));
  const Batch plain = LabelSmoothing({.classes = 3})(four_samples(), random);
  EXPECT_TRUE(torch::equal(plain["targets"][2], torch::tensor({0.0F, 0.0F, 1.0F})));
  EXPECT_THROW(LabelSmoothing({.smoothing = 2, .classes = 3}), ConfigError);
  EXPECT_THROW(LabelSmoothing({}), ConfigError);
}

TEST(Mix, IsAFunctionOfSeedEpochAndSamples) {
  const auto dataset =
      std::make_shared<TensorDataset>(torch::rand({20, 4}), torch::arange(20).remainder(3));
  const auto epoch = [&](std::int64_t number, std::int64_t prefetch) {
    const Loader loader(dataset, {.batch_size = 5,
                                  .prefetch = prefetch,
                                  .batch_transform = Mixup({.alpha = 1, .classes = 3})});
    std::vector<torch::Tensor> features;
    for (const Batch& batch : loader.stream({.epoch = number})) {
      features.push_back(batch["features"].clone());
    }
    return torch::cat(features);
  };
  EXPECT_TRUE(torch::equal(epoch(1, 0), epoch(1, 2)));
  EXPECT_FALSE(torch::equal(epoch(1, 0), epoch(2, 0)));
}

// Ranks with other options would train on other samples.
TEST(Mix, RanksCompareItsOptions) {
  const std::vector<BatchTransform> all = {
      Mixup({.alpha = 0.2, .classes = 3}),
      Mixup({.alpha = 0.3, .classes = 3}),
      Mixup({.alpha = 0.2, .classes = 4}),
      Mixup({.alpha = 0.2, .classes = 3, .keys = {.features = "image"}}),
      CutMix({.alpha = 0.2, .classes = 3}),
      LabelSmoothing({.smoothing = 0.2, .classes = 3}),
      LabelSmoothing({.smoothing = 0.3, .classes = 3})};
  std::set<std::string> names;
  for (const BatchTransform& each : all) names.insert(each.name());
  EXPECT_EQ(names.size(), all.size());
  EXPECT_EQ(BatchTransform(Mixup({.classes = 3})).name(),
            BatchTransform(Mixup({.alpha = 0.2, .classes = 3})).name());
}

}  // namespace
}  // namespace lockstep::data
