#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/recipe/fitted.h"
#include "lockstep/recipe/prediction_file.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/recipe/scaling.h"
#include "lockstep/recipe/shorthand.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/science/hdf5.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(ScienceTargets, CubesOfAFileAndTheirNetwork) {
  const TemporaryDirectory folder;
  science::write_hdf5(folder / "f.h5", {{"u", torch::rand({3, 32, 32, 32})}});
  const std::string text = "path: " + (folder / "f.h5").string() + ", batch_size: 16, flat: true";
  const auto all = targets().datasets.make(node("{HDF5: {" + text + "}}"));
  EXPECT_EQ(all->size(), 8);
  const auto train =
      targets().datasets.make(node("{HDF5: {" + text + ", train_fraction: 0.75, part: train}}"));
  const auto valid =
      targets().datasets.make(node("{HDF5: {" + text + ", train_fraction: 0.75, part: valid}}"));
  EXPECT_EQ(train->size(), 6);
  EXPECT_EQ(valid->size(), 2);
  EXPECT_THAT(
      error_of([&] { targets().datasets.make(node("{HDF5: {" + text + ", part: valid}}")); }),
      HasSubstr("train_fraction"));
  const std::vector<std::int64_t> first = {0};
  const Batch batch = all->gather(first, {});
  const Model model =
      targets().models.make(node("CNN3d"), {.batch = batch, .input = batch["features"]});
  EXPECT_EQ(model(batch["features"]).sizes(), torch::IntArrayRef({1, 12288}));
  EXPECT_THAT(error_of([] { targets().models.make(node("CNN3d"), {}); }),
              HasSubstr("takes its sizes from the data"));
}

// A run stops at one such value, in a config as in C++.
TEST(ScienceTargets, AValueThatIsNotFiniteIsNamed) {
  const TemporaryDirectory folder;
  torch::Tensor field = torch::rand({3, 8, 8, 8});
  field[1][2][3][4] = std::numeric_limits<float>::quiet_NaN();
  science::write_hdf5(folder / "f.h5", {{"u", field}});
  const std::string text = "path: " + (folder / "f.h5").string() + ", batch_size: 4";
  std::string message;
  try {
    targets().datasets.make(node("{HDF5: {" + text + "}}"));
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("f.h5: dataset 'u': the value at [1, 2, 3, 4] is nan, and 1 of"));
  EXPECT_EQ(targets().datasets.make(node("{HDF5: {" + text + ", allow_non_finite: true}}"))->size(),
            8);
}

TEST(ScienceTargets, ChannelsMayBeLast) {
  const TemporaryDirectory folder;
  science::write_hdf5(folder / "f.h5", {{"u", torch::rand({8, 8, 4, 2})}});
  const auto with = [&](const std::string& more) {
    return targets().datasets.make(
        node("{HDF5: {path: " + (folder / "f.h5").string() + more + "}}"));
  };
  EXPECT_EQ(with(", channel_axis: last")->sample(0)["features"].sizes(),
            torch::IntArrayRef({2, 8, 8, 4}));
  std::string message;
  try {
    with("");
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message, HasSubstr("set channel_axis to first or last"));
}

// Loaders of one field have transforms of their own, and the statistics of the training part.
TEST(ScienceTargets, PartsAreScaledAndTransformed) {
  const TemporaryDirectory folder;
  science::write_hdf5(folder / "f.h5", {{"u", 100 + 5 * torch::rand({3, 8, 8, 8})}});
  const std::string text =
      "path: " + (folder / "f.h5").string() + ", batch_size: 4, train_fraction: 0.75, flat: true";
  const auto with = [&](const std::string& more) {
    return targets().datasets.make(node("{HDF5: {" + text + ", normalize: standard" + more + "}}"));
  };
  const auto train = with(", part: train, transform: [{Normalize: {mean: 0, std: 0.5}}]");
  const auto plain = with(", part: train"), valid = with(", part: valid"), all = with("");
  const data::Scaling scaling = data::scaling_of(*plain);
  EXPECT_EQ(scaling.features.kind, data::Normalization::kStandard);
  for (const auto& other : {train, valid, all}) EXPECT_EQ(data::scaling_of(*other), scaling);
  const Batch once = plain->sample(2), twice = train->sample(2);
  EXPECT_LT(once["features"].abs().max().item<float>(), 10);
  EXPECT_TRUE(twice["features"].equal(2 * once["features"]));
  EXPECT_TRUE(twice["targets"].equal(once["targets"])) << "flat in both";
  EXPECT_EQ(all->size(), 8);
}

TEST(ScienceTargets, ARunRecordsTheStatistics) {
  const TemporaryDirectory folder;
  science::write_hdf5(folder / "f.h5", {{"u", 100 + 5 * torch::rand({1, 16, 4})}});
  science::write_hdf5(folder / "g.h5", {{"u", 700 + 5 * torch::rand({1, 16, 4})}});
  const auto path = [&](const char* name) { return (folder / name).string(); };
  config::Node document = config::parse_yaml(
      "model: [Flatten, {Linear: {out_features: 16}}]\n"
      "criterion: MSELoss\n"
      "optimizer: {_target_: SGD, lr: 0.1}\n"
      "num_epochs: 1\n"
      "valid_loader: valid\n"
      "loaders:\n"
      "  train: {batch_size: 1, dataset: &f {_target_: HDF5, path: " +
          path("f.h5") +
          ", dimensions: 2, batch_size: 4, flat: true, train_fraction: 0.5, part: train, "
          "normalize: standard}}\n"
          "  valid: {batch_size: 1, dataset: {<<: *f, part: valid}}\n",
      "a.yml");
  spell_out(document);
  const Recipe recipe = read_recipe(document);
  record_fitted(recipe, document);
  const data::Scaling scaling =
      data::scaling_of(*recipe.stages.at(0).options.loaders.at("train").dataset());
  // Read again from its text, with another file.
  config::Node again = config::parse_yaml(config::to_yaml(document), "b.yml");
  again.find("loaders")->find("valid")->find("dataset")->set("path",
                                                             config::Node::text(path("g.h5")));
  const Evaluation evaluation = read_evaluation(again);
  EXPECT_EQ(data::scaling_of(*evaluation.loader.dataset()), scaling) << "to the last digit";
  // Predictions are scaled back.
  Batch outputs = {{"logits", torch::zeros({3, 16})}, {"other", torch::zeros({3, 5})}};
  OutputScaling(evaluation.loader).undo(outputs);
  EXPECT_NEAR(outputs["logits"].mean().item<double>(), scaling.targets.shift[0], 1e-3);
  EXPECT_EQ(outputs["other"].abs().max().item<float>(), 0);
}

// A file of its own is scaled as the training data are, and only training is augmented.
TEST(ScienceTargets, OtherLoadersTakeTheStatisticsOfTheTrainLoader) {
  const TemporaryDirectory folder;
  science::write_hdf5(folder / "f.h5", {{"u", 100 + 5 * torch::rand({1, 8, 4})}});
  science::write_hdf5(folder / "g.h5", {{"u", 700 + 5 * torch::rand({1, 8, 4})}});
  const auto options = [&](const char* name) {
    return "{_target_: HDF5, path: " + (folder / name).string() +
           ", dimensions: 2, batch_size: 4, flat: true, normalize: standard, augment: "
           "{Normalize: {mean: 0, std: 0.5}}";
  };
  config::Node document = config::parse_yaml(
      "model: [Flatten, {Linear: {out_features: 16}}]\n"
      "criterion: MSELoss\n"
      "optimizer: {_target_: SGD, lr: 0.1}\n"
      "num_epochs: 1\n"
      "loaders:\n"
      "  valid: {batch_size: 1, dataset: " +
          options("g.h5") + "}}\n  infer: {batch_size: 1, dataset: " + options("g.h5") +
          ", scaling: {features: {kind: standard, shift: [1], scale: [2]}, targets: {kind: "
          "standard, shift: [1], scale: [2]}}}}\n  train: {batch_size: 1, dataset: " +
          options("f.h5") + "}}\n",
      "a.yml");
  const Recipe recipe = read_recipe(document);
  const data::Loaders& loaders = recipe.stages.at(0).options.loaders;
  EXPECT_THAT(loaders.names(), ::testing::ElementsAre("valid", "infer", "train"));
  const data::Scaling scaling = data::scaling_of(*loaders.at("train").dataset());
  EXPECT_EQ(data::scaling_of(*loaders.at("valid").dataset()), scaling);
  EXPECT_EQ(data::scaling_of(*loaders.at("infer").dataset()).features.shift[0], 1)
      << "its own stays";
  // About (700 - 100) / 1.4, and twice as much with `augment`.
  const torch::Tensor values = loaders.at("valid").dataset()->sample(0)["features"];
  const double expected = (702.5 - scaling.features.shift[0]) / scaling.features.scale[0];
  EXPECT_NEAR(values.mean().item<double>(), expected, 0.01 * expected);
}

// All cubes of a file include those of its training part.
TEST(ScienceTargets, TheWholeFieldIsNotForEvaluation) {
  const TemporaryDirectory folder;
  science::write_hdf5(folder / "f.h5", {{"u", torch::rand({1, 8, 4})}});
  const auto error = [&](const std::string& part) {
    const std::string file =
        "{batch_size: 1, dataset: {_target_: HDF5, dimensions: 2, batch_size: "
        "4, flat: true, path: " +
        (folder / "f.h5").string() + ", ";
    return error_of([&] {
      read_recipe(config::parse_yaml(
          "model: [Flatten, {Linear: {out_features: 16}}]\ncriterion: MSELoss\noptimizer: "
          "{_target_: SGD, lr: 0.1}\nloaders:\n  train: " +
              file + "train_fraction: 0.5, part: train}}\n  valid: " + file + part + "}}\n",
          "a.yml"));
    });
  };
  EXPECT_EQ(error("train_fraction: 0.5, part: valid"), "");
  EXPECT_THAT(error("part: all"), HasSubstr("has samples of loader 'train'"));
  EXPECT_THAT(error("train_fraction: 0.5, part: train"), HasSubstr("has samples of loader"));
}

TEST(Predictions, InHdf5AreDatasetsByKey) {
  const TemporaryDirectory folder;
  const torch::Tensor logits = torch::rand({3, 2}), labels = torch::arange(3);
  PredictionFile file({.path = folder / "x.h5", .samples = {0, 1, 2}});
  file.write({{"logits", logits.narrow(0, 0, 2)}, {"labels", labels.narrow(0, 0, 2)}});
  file.write({{"logits", logits.narrow(0, 2, 1)}, {"labels", labels.narrow(0, 2, 1)}});
  EXPECT_EQ(file.finish(), (std::vector<std::filesystem::path>{folder / "x.h5"}));
  const science::Hdf5File written(folder / "x.h5");
  EXPECT_TRUE(written.read("logits").equal(logits));
  EXPECT_TRUE(written.read("labels").equal(labels.to(torch::kFloat32)));
}

}  // namespace
}  // namespace lockstep::recipe
