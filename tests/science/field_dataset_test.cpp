#include "lockstep/science/field_dataset.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/loader.h"
#include "lockstep/science/hdf5.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

using ::testing::HasSubstr;

// Two checkpoints of a velocity [2, 8, 8, 8] and a density [8, 8, 8], each in its own file.
class Fields : public ::testing::Test {
 protected:
  Fields() {
    for (const int checkpoint : {0, 10}) {
      const auto field = [&](int offset, torch::IntArrayRef shape) {
        return (torch::arange(c10::multiply_integers(shape)) + offset + 10000 * checkpoint)
            .to(torch::kFloat32)
            .reshape(shape);
      };
      write_hdf5(folder_ / fmt::format("velocity_{:03d}.h5", checkpoint),
                 {{"u", field(0, {2, 8, 8, 8})}});
      write_hdf5(folder_ / fmt::format("density_{:03d}.h5", checkpoint),
                 {{"aux", field(7, {8, 8, 8})}, {"rho", field(5, {8, 8, 8})}});
    }
    options_.path = (folder_ / "{feature}_{checkpoint:03d}.h5").string();
    options_.checkpoints = {0, 10};
    options_.features = {"velocity", "density"};
    options_.target = {"density"};
    options_.batch_size = {4};
  }

  std::string error() const {
    try {
      hdf5_dataset(options_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TemporaryDirectory folder_;
  Hdf5Options options_;
};

TEST_F(Fields, AreCutIntoCubesOfAllChannels) {
  const FieldData data = hdf5_dataset(options_);
  ASSERT_EQ(data.train->size(), 16);  // 8 cubes of 2 checkpoints
  EXPECT_EQ(data.train, data.all);
  EXPECT_EQ(data.size, (Sizes{8, 8, 8}));
  const Batch sample = data.train->sample(9);  // the second cube of the second checkpoint
  EXPECT_EQ(sample["features"].sizes(), torch::IntArrayRef({3, 4, 4, 4}));
  EXPECT_EQ(sample["targets"].sizes(), torch::IntArrayRef({1, 4, 4, 4}));
  EXPECT_EQ(sample["features"][0][0][0][0].item<float>(), 100000 + 4);
  EXPECT_EQ(sample["features"][1][0][0][1].item<float>(), 100000 + 512 + 5);
  EXPECT_EQ(sample["features"][2][0][0][0].item<float>(), 100000 + 5 + 4)
      << "the last dataset of the file";
  EXPECT_TRUE(sample["targets"][0].equal(sample["features"][2]));
}

TEST_F(Fields, AreTheSameReadAsNeeded) {
  const FieldData kept = hdf5_dataset(options_);
  options_.memory = 0;
  const FieldData streamed = hdf5_dataset(options_);
  for (std::int64_t i = 0; i < 16; ++i) {
    EXPECT_TRUE(kept.train->sample(i)["features"].equal(streamed.train->sample(i)["features"]))
        << i;
  }
}

TEST_F(Fields, LabelsFlatTargetsAndSampling) {
  options_.feature_labels = {"u", "aux"};
  options_.flat = true;
  options_.sample_to = 4;
  options_.batch_size = {2, 4, 4};
  const FieldData data = hdf5_dataset(options_);
  ASSERT_EQ(data.train->size(), 4);
  const Batch sample = data.train->sample(1);
  EXPECT_EQ(sample["targets"].sizes(), torch::IntArrayRef({32}));
  EXPECT_EQ(sample["features"][2][0][0][1].item<float>(), 7 + 4 * 64 + 2) << "every second point";
}

TEST_F(Fields, ASplitHasEveryCubeOnce) {
  options_.train_fraction = 0.75;
  options_.shuffle = true;
  const FieldData data = hdf5_dataset(options_);
  EXPECT_EQ(data.train->size(), 12);
  EXPECT_EQ(data.valid->size(), 4);
  std::set<float> firsts;
  for (const auto& part : {data.train, data.valid}) {
    for (std::int64_t i = 0; i < part->size(); ++i)
      firsts.insert(part->sample(i)["features"][0][0][0][0].item<float>());
  }
  EXPECT_EQ(firsts.size(), 16u);
  EXPECT_TRUE(
      hdf5_dataset(options_).train->sample(0)["features"].equal(data.train->sample(0)["features"]))
      << "the split depends only on the seed";
}

TEST_F(Fields, OneFileWithLabelsInOneOrTwoDimensions) {
  write_hdf5(folder_ / "plane.h5",
             {{"a", torch::rand({6, 4})}, {"b", torch::rand({2, 6, 4})}, {"c", torch::rand({6})}});
  const FieldData data = hdf5_dataset({.path = (folder_ / "plane.h5").string(),
                                       .feature_labels = {"a", "b"},
                                       .target_labels = {"a"},
                                       .batch_size = {2},
                                       .dimensions = 2});
  EXPECT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.train->sample(0)["features"].sizes(), torch::IntArrayRef({3, 2, 2}));
  const FieldData line =
      hdf5_dataset({.path = (folder_ / "plane.h5").string(), .feature_labels = {"c"}});
  EXPECT_EQ(line.train->sample(0)["features"].sizes(), torch::IntArrayRef({1, 6}));
  EXPECT_TRUE(line.train->sample(0)["targets"].equal(line.train->sample(0)["features"]));
}

TEST_F(Fields, TensorsOfChannelsAreTakenTogether) {
  write_hdf5(folder_ / "stress.h5", {{"s", torch::rand({3, 3, 4, 4, 4})}});
  EXPECT_EQ(
      hdf5_dataset({.path = (folder_ / "stress.h5").string()}).train->sample(0)["features"].sizes(),
      torch::IntArrayRef({9, 4, 4, 4}));
}

TEST_F(Fields, AValueThatIsNotFiniteIsNamed) {
  torch::Tensor density = torch::rand({8, 8, 8});
  density[2][5][7] = NAN;
  density[6][0][1] = HUGE_VAL;
  write_hdf5(folder_ / "density_010.h5", {{"rho", density}});
  const char* const place = "density_010.h5: dataset 'rho': the value at [2, 5, 7] is nan";
  EXPECT_THAT(error(), HasSubstr(place));
  EXPECT_THAT(error(), HasSubstr("2 of the 512 that were read"));
  options_.sample_to = 4;
  EXPECT_EQ(error(), "") << "values that are not read are not checked";
  options_.sample_to.reset();
  options_.memory = 0;
  const FieldData streamed = hdf5_dataset(options_);
  for (std::int64_t i = 0; i < 16; ++i) {
    std::string text;
    try {
      streamed.all->sample(i);
    } catch (const DataError& error) {
      text = error.what();
    }
    if (i == 8 + 3) {
      EXPECT_THAT(text, HasSubstr(place));
    } else if (i == 8 + 4) {
      EXPECT_THAT(text, HasSubstr("the value at [6, 0, 1] is inf"));
    } else {
      EXPECT_EQ(text, "") << i;
    }
  }
  options_.allow_non_finite = true;
  EXPECT_TRUE(
      std::isnan(hdf5_dataset(options_).all->sample(11)["targets"][0][2][1][3].item<float>()));
}

// A sum of floats may overflow although every value is finite.
TEST_F(Fields, LargeValuesAreFinite) {
  write_hdf5(folder_ / "density_010.h5", {{"rho", torch::full({8, 8, 8}, 3e38)}});
  EXPECT_EQ(error(), "");
}

TEST_F(Fields, AFractionOfOneCubeIsRefused) {
  options_.checkpoints = {0};
  options_.batch_size = {};
  EXPECT_EQ(error(), "");
  options_.train_fraction = 0.75;
  EXPECT_THAT(error(), HasSubstr("train_fraction: 0.75 of a single cube leaves nothing"));
  options_.checkpoints = {0, 10};
  EXPECT_EQ(error(), "");
}

// Metrics of the data that a model is trained on say nothing about new data.
TEST_F(Fields, WithoutAFractionThereIsNoValidation) {
  const FieldData data = hdf5_dataset(options_);
  EXPECT_EQ(data.valid, nullptr);
  try {
    data::Loader(data.valid, {.batch_size = 2});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no data for validation without train_fraction"));
  }
  options_.valid_is_train = true;
  const FieldData both = hdf5_dataset(options_);
  EXPECT_EQ(both.valid, both.train);
  options_.train_fraction = 0.5;
  EXPECT_THAT(error(), HasSubstr("valid_is_train: expected false"));
}

// A file with its channels last has the same samples as one with its channels first.
TEST_F(Fields, ChannelsLastAreRecognised) {
  const torch::Tensor field = torch::rand({3, 8, 8, 8});
  write_hdf5(folder_ / "first.h5", {{"u", field}});
  write_hdf5(folder_ / "last.h5", {{"u", field.permute({1, 2, 3, 0}).contiguous()}});
  for (const std::int64_t memory : {1 << 30, 0}) {
    for (const std::optional<std::int64_t> sample_to : {std::optional<std::int64_t>(), {4}}) {
      const auto with = [&](const char* file, ChannelAxis axis) {
        return hdf5_dataset({.path = (folder_ / file).string(),
                             .channel_axis = axis,
                             .batch_size = {4},
                             .sample_to = sample_to,
                             .memory = memory})
            .all;
      };
      const auto first = with("first.h5", ChannelAxis::kAuto);
      for (const ChannelAxis axis : {ChannelAxis::kAuto, ChannelAxis::kLast}) {
        const auto last = with("last.h5", axis);
        ASSERT_EQ(last->size(), first->size());
        for (std::int64_t i = 0; i < last->size(); ++i) {
          ASSERT_TRUE(last->sample(i)["features"].equal(first->sample(i)["features"])) << i;
        }
      }
    }
  }
}

TEST_F(Fields, ChannelsThatCouldBeAtBothEndsAreRefused) {
  const auto features = [&](torch::IntArrayRef shape, ChannelAxis axis = ChannelAxis::kAuto) {
    write_hdf5(folder_ / "f.h5", {{"u", torch::rand(shape)}});
    return hdf5_dataset({.path = (folder_ / "f.h5").string(), .channel_axis = axis})
        .all->sample(0)["features"]
        .sizes()
        .vec();
  };
  // The channels are the first size of a sample.
  EXPECT_EQ(features({3, 6, 6, 6}), (Sizes{3, 6, 6, 6}));
  EXPECT_EQ(features({20, 6, 6, 6}), (Sizes{20, 6, 6, 6})) << "more than few, but a cube";
  EXPECT_EQ(features({2, 12, 12, 6}), (Sizes{2, 12, 12, 6})) << "fewer than any side";
  EXPECT_EQ(features({6, 6, 6, 6}), (Sizes{6, 6, 6, 6}));
  EXPECT_EQ(features({6, 6, 6, 3}), (Sizes{3, 6, 6, 6}));
  EXPECT_EQ(features({6, 6, 6, 3, 3}), (Sizes{9, 6, 6, 6}));
  EXPECT_EQ(features({18, 18, 18, 17}), (Sizes{18, 18, 18, 17})) << "too many to be channels";
  try {
    features({12, 12, 6, 3});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("f.h5: dataset 'u': the shape [12, 12, 6, 3] does not tell whether "
                          "channels come first or last; set channel_axis to first or last"));
  }
  EXPECT_EQ(features({12, 12, 6, 3}, ChannelAxis::kLast), (Sizes{3, 12, 12, 6}));
  EXPECT_EQ(features({12, 12, 6, 3}, ChannelAxis::kFirst), (Sizes{12, 12, 6, 3}));
  EXPECT_THROW(features({3, 6, 6, 6, 3}), DataError) << "channels at both ends";
}

TEST_F(Fields, AnIndexOfChannelsLastIsThatOfTheFile) {
  torch::Tensor field = torch::rand({8, 8, 8, 3});
  field[2][5][7][1] = NAN;
  write_hdf5(folder_ / "last.h5", {{"u", field}});
  options_ = {.path = (folder_ / "last.h5").string()};
  EXPECT_THAT(error(), HasSubstr("last.h5: dataset 'u': the value at [2, 5, 7, 1] is nan"));
}

TEST_F(Fields, CheckpointsOfDifferentSizesAreTruncated) {
  write_hdf5(folder_ / "velocity_010.h5", {{"u", torch::ones({2, 12, 8, 4})}});
  write_hdf5(folder_ / "density_010.h5", {{"rho", torch::ones({12, 8, 4})}});
  std::string warning;
  set_warning_handler([&](const std::string& text) { warning += text; });
  const FieldData data = hdf5_dataset(options_);
  set_warning_handler({});
  EXPECT_EQ(data.size, (Sizes{8, 8, 4}));
  EXPECT_EQ(data.all->size(), 2 * 4);
  EXPECT_EQ(data.all->sample(7)["features"].max().item<float>(), 1);
  EXPECT_THAT(warning, HasSubstr("velocity_000.h5: dataset 'u': has size [8, 8, 8], and other "
                                 "checkpoints have other sizes: only the first [8, 8, 4]"));
  options_.box = {1, 1, 1};
  EXPECT_THAT(error(), HasSubstr("box: expected checkpoints of one size"));
}

TEST_F(Fields, ABoxHasTheLengthsOfItsParts) {
  options_.box = {2, 4, 8};
  options_.sample_to = 4;
  options_.batch_size = {2, 4, 3};  // one point of the last side is left over
  const FieldData data = hdf5_dataset(options_);
  EXPECT_EQ(data.size, (Sizes{4, 4, 3}));
  EXPECT_EQ(data.box, (BoxLengths{2, 4, 6}));
  EXPECT_EQ(data.cube_box, (BoxLengths{1, 4, 6}));
  options_.box = {1, 2};
  EXPECT_THAT(error(), HasSubstr("box: expected 3 lengths"));
  options_.box = {};
  EXPECT_TRUE(hdf5_dataset(options_).box.empty());
}

TEST_F(Fields, AreScaledByTheStatisticsOfTheTrainingPart) {
  options_.train_fraction = 0.5;
  options_.shuffle = true;
  const FieldData raw = hdf5_dataset(options_);
  options_.normalize = Normalization::kStandard;
  options_.flat = true;
  const FieldData kept = hdf5_dataset(options_);
  options_.memory = 0;
  const FieldData streamed = hdf5_dataset(options_);
  EXPECT_EQ(kept.scaling, streamed.scaling);
  ASSERT_EQ(kept.scaling.features.shift.size(), 3u);
  ASSERT_EQ(kept.scaling.targets.shift.size(), 1u);
  for (const FieldData* const data : {&kept, &streamed}) {
    EXPECT_EQ(data::scaling_of(*data->valid), data->scaling);
    std::vector<torch::Tensor> features, targets;
    for (std::int64_t i = 0; i < data->train->size(); ++i) {
      features.push_back(data->train->sample(i)["features"]);
      targets.push_back(data->train->sample(i)["targets"]);
    }
    const torch::Tensor x = torch::stack(features).to(torch::kFloat64).transpose(0, 1).flatten(1);
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_NEAR(x[c].mean().item<double>(), 0, 1e-6) << c;
      EXPECT_NEAR(x[c].std(false).item<double>(), 1, 1e-6) << c;
    }
    // Scaled back, they are the values of the file.
    EXPECT_TRUE(torch::allclose(data->scaling.targets.undo(torch::stack(targets))[3],
                                raw.train->sample(3)["targets"].flatten(), 1e-6, 1e-2));
    EXPECT_TRUE(torch::allclose(
        data->scaling.features.undo(data->valid->sample(1)["features"].unsqueeze(0))[0],
        raw.valid->sample(1)["features"], 1e-6, 1e-2));
  }
  for (std::int64_t i = 0; i < kept.all->size(); ++i) {
    for (const char* const key : {"features", "targets"}) {
      ASSERT_TRUE(kept.all->sample(i)[key].equal(streamed.all->sample(i)[key])) << i << key;
    }
  }
}

// A model that was trained on one field is used with its statistics on another one.
TEST_F(Fields, AreScaledByGivenStatistics) {
  options_.normalize = Normalization::kMinMax;
  options_.checkpoints = {0};
  const data::Scaling scaling = hdf5_dataset(options_).scaling;
  options_.checkpoints = {10};
  EXPECT_NE(hdf5_dataset(options_).scaling, scaling);
  options_.scaling = scaling;
  const FieldData data = hdf5_dataset(options_);
  EXPECT_EQ(data.scaling, scaling);
  EXPECT_GT(data.all->sample(0)["targets"].min().item<float>(), 1) << "outside of 0 to 1";
  options_.normalize = Normalization::kLog;
  EXPECT_THAT(error(), HasSubstr("normalize: expected minmax as scaling has, got log"));
}

TEST_F(Fields, AZeroHasNoLogarithm) {
  options_.normalize = Normalization::kLog;
  EXPECT_THAT(error(), HasSubstr("'features', channel 0: normalize = log needs finite values above "
                                 "0"))
      << "the first value of the velocity is 0";
}

TEST_F(Fields, ErrorsOfScalingNameTheCube) {
  options_.normalize = Normalization::kLog;
  for (const std::int64_t memory : {std::int64_t{1} << 30, std::int64_t{0}}) {
    options_.memory = memory;
    EXPECT_THAT(error(), HasSubstr("velocity_000.h5)")) << "in the statistics, memory " << memory;
  }
  options_.memory = 1 << 30;
  options_.features = {"density"};
  options_.checkpoints = {10};
  torch::Tensor density = torch::ones({8, 8, 8});
  density[5][2][7] = -3;
  write_hdf5(folder_ / "density_010.h5", {{"rho", density}});
  const data::ChannelScaling log{.kind = Normalization::kLog, .shift = {0}, .scale = {1}};
  options_.scaling = data::Scaling{.features = log, .targets = log};
  EXPECT_THAT(error(), HasSubstr("sample 5 (cube 5 of "));
  EXPECT_THAT(error(), HasSubstr("density_010.h5): 'features': scaling (log): channel 0: expected "
                                 "values above 0, got -3"));
}

TEST_F(Fields, OnlyTheTrainingPartIsAugmented) {
  options_.features = {"density"};
  options_.train_fraction = 0.5;
  options_.flat = true;
  const FieldData raw = hdf5_dataset(options_);
  options_.augment = test::RandomMirror();
  options_.target_transform = data::Lambda([](const torch::Tensor& batch) { return -batch; });
  for (const std::int64_t memory : {1 << 30, 0}) {
    options_.memory = memory;
    const FieldData data = hdf5_dataset(options_);
    int mirrored = 0;
    for (std::int64_t i = 0; i < raw.train->size(); ++i) {
      const Batch plain = raw.train->sample(i), augmented = data.train->sample(i);
      ASSERT_EQ(augmented["targets"].dim(), 1) << "flat comes last";
      EXPECT_TRUE(augmented["targets"].equal(-augmented["features"].flatten()));
      mirrored += augmented["features"].equal(plain["features"]) ? 0 : 1;
      EXPECT_TRUE(data.valid->sample(i)["features"].equal(raw.valid->sample(i)["features"]));
      EXPECT_TRUE(data.all->sample(i)["features"].equal(raw.all->sample(i)["features"]));
    }
    EXPECT_GT(mirrored, 0);
    EXPECT_LT(mirrored, raw.train->size());
  }
}

TEST_F(Fields, ErrorsNameFileAndDataset) {
  options_.checkpoints = {0, 11};
  EXPECT_THAT(error(), HasSubstr("velocity_011.h5: there is no such file"));
  options_.checkpoints = {0};
  options_.feature_labels = {"u", "rhoo"};
  EXPECT_THAT(
      error(),
      HasSubstr("density_000.h5: dataset 'rhoo': there is none of this name; did you mean 'rho'?"));
  options_.feature_labels = {};
  write_hdf5(folder_ / "density_000.h5", {{"rho", torch::rand({8, 8, 4})}});
  EXPECT_THAT(error(),
              HasSubstr("density_000.h5: dataset 'rho': has size [8, 8, 4], expected [8, 8, 8]"));
  write_hdf5(folder_ / "density_000.h5", {{"rho", torch::rand({8, 8})}});
  EXPECT_THAT(error(), HasSubstr("expected [8, 8, 8]"));
  options_.features = options_.target = {"velocity"};
  options_.dimensions = 1;
  EXPECT_THAT(error(), HasSubstr("expected 1 dimensions of space"));
  options_.dimensions.reset();
  options_.batch_size = {16};
  EXPECT_THAT(error(), HasSubstr("a cube of [16, 16, 16] does not fit into [8, 8, 8]"));
  options_.batch_size = {4, 4};
  EXPECT_THAT(error(), HasSubstr("batch_size: expected one number or 3, got 2"));
  options_.batch_size = {4};
  options_.sample_to = 3;
  EXPECT_THAT(error(), HasSubstr("cannot be sampled to 3 points"));
  options_.sample_to.reset();
  options_.train_fraction = 1.5;
  EXPECT_THAT(error(), HasSubstr("train_fraction: expected a number between 0 and 1"));
}

TEST(FormatPath, IsPythons) {
  EXPECT_EQ(format_path("{feature}/{checkpoint:04d}.h5", 12, "u"), "u/0012.h5");
  EXPECT_EQ(format_path("t{checkpoint:.2f}.h5", 0.5, ""), "t0.50.h5");
  EXPECT_EQ(format_path("t{checkpoint}.h5", 3, ""), "t3.h5");
  EXPECT_EQ(format_path("t{checkpoint}.h5", 0.25, ""), "t0.25.h5");
  EXPECT_THROW(format_path("{time}.h5", 0, ""), ConfigError);
  EXPECT_THROW(format_path("{checkpoint:zz}.h5", 0, ""), ConfigError);
  EXPECT_THROW(format_path("{feature", 0, ""), ConfigError);
}

TEST_F(Fields, NamesWithoutAPatternAreDatasetsOfTheFile) {
  options_.path = (folder_ / "density_000.h5").string();
  options_.checkpoints = {0};
  options_.features = {"aux"};
  options_.target = {"rho"};
  const Batch sample = hdf5_dataset(options_).train->sample(0);
  EXPECT_EQ(sample["features"].flatten()[0].item<float>(), 7);
  EXPECT_EQ(sample["targets"].flatten()[0].item<float>(), 5);
  options_.features = {"nonsense"};
  EXPECT_THAT(error(), HasSubstr("density_000.h5: dataset 'nonsense': there is none of this name"));
}

TEST_F(Fields, APatternNeedsNames) {
  options_.features = {};
  EXPECT_THAT(error(), HasSubstr("features: expected names for the path's {feature}, got none"));
}

TEST_F(Fields, AnEmptyDatasetIsNamed) {
  write_hdf5(folder_ / "empty.h5", {{"a", torch::empty({0, 8, 8})}});
  options_ = {.path = (folder_ / "empty.h5").string()};
  EXPECT_THAT(error(), HasSubstr("empty.h5: dataset 'a': has shape [0, 8, 8], so it is empty"));
}

TEST_F(Fields, OtherChannelsInALaterCheckpointAreNamed) {
  write_hdf5(folder_ / "velocity_010.h5", {{"u", torch::rand({3, 8, 8, 8})}});
  EXPECT_THAT(error(), HasSubstr("velocity_010.h5: dataset 'u': has 3 channels, expected 2 as"));
}

TEST_F(Fields, KeptAndStreamedAreTheSame) {
  for (const bool flat : {false, true}) {
    for (const std::optional<std::int64_t> sample_to : {std::optional<std::int64_t>(), {4}}) {
      options_.flat = flat;
      options_.sample_to = sample_to;
      options_.batch_size = {sample_to ? 2 : 4};
      options_.memory = 1 << 30;
      const FieldData kept = hdf5_dataset(options_);
      options_.memory = 0;
      const FieldData streamed = hdf5_dataset(options_);
      ASSERT_EQ(kept.all->size(), streamed.all->size());
      for (std::int64_t i = 0; i < kept.all->size(); ++i) {
        for (const char* const key : {"features", "targets"}) {
          ASSERT_TRUE(kept.all->sample(i)[key].equal(streamed.all->sample(i)[key])) << i << key;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::science
