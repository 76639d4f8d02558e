#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/image/encode.h"
#include "lockstep/image/image_folder.h"
#include "lockstep/recipe/fitted.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

void write_photos(const TemporaryDirectory& folder) {
  for (const std::string name : {"roses", "tulips"}) {
    std::filesystem::create_directory(folder / name);
    const torch::Tensor photo = torch::full({12, 10, 3}, name == "roses" ? 200 : 40, torch::kUInt8);
    write_file_atomically(folder / (name + "/1.jpg"), data::encode_jpeg(photo));
  }
}

TEST(ImageTargets, AFolderOfImages) {
  const TemporaryDirectory folder;
  write_photos(folder);
  const std::string root = "root: " + folder.path().string();
  const auto images = targets().datasets.make(
      node("{ImageFolder: {" + root + ", channels: grey, on_error: skip, transform: ToTensor}}"));
  EXPECT_EQ(images->size(), 2);
  EXPECT_THAT(images->class_names(), ::testing::ElementsAre("roses", "tulips"));
  EXPECT_EQ(images->sample(1)["features"].sizes(), torch::IntArrayRef({1, 12, 10}));
  const auto error = [&](const std::string& more) {
    return error_of(
        [&] { targets().datasets.make(node("{ImageFolder: {" + root + ", " + more + "}}")); });
  };
  EXPECT_THAT(error("classes: [rosse]"), HasSubstr("did you mean 'roses'"));
  EXPECT_THAT(error("channels: gray"), HasSubstr("did you mean 'grey'"));
  EXPECT_THAT(error_of([] { targets().datasets.make(node("{ImageFolder: {root: /none}}")); }),
              HasSubstr("root: there is no folder /none"));
}

TEST(ImageTargets, ATableOfImagesAndTheirOrientation) {
  const TemporaryDirectory folder;
  write_photos(folder);
  // EXIF data behind the first two bytes of the file: turn it by a quarter.
  std::string turned = read_file(folder / "roses/1.jpg");
  turned.insert(2, std::string("\xff\xe1\x00\x22"
                               "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0"
                               "\0\0\0\0\0\0",
                               36));
  write_file_atomically(folder / "roses/1.jpg", turned);
  write_file_atomically(folder / "list.csv", "path,label\ntulips/1.jpg,flat\nroses/1.jpg,tall\n");
  const std::string csv = "{ImageFolder: {csv: " + (folder / "list.csv").string();
  const auto images = targets().datasets.make(node(csv + "}}"));
  EXPECT_THAT(images->class_names(), ::testing::ElementsAre("flat", "tall"));
  EXPECT_EQ(images->sample(0)["features"].sizes(), torch::IntArrayRef({3, 12, 10}));
  EXPECT_EQ(images->sample(1)["features"].sizes(), torch::IntArrayRef({3, 10, 12}));
  EXPECT_EQ(images->sample(1)["targets"].item<std::int64_t>(), 1);
  const auto as_stored = targets().datasets.make(node(csv + ", orient: false}}"));
  EXPECT_EQ(as_stored->sample(1)["features"].sizes(), torch::IntArrayRef({3, 12, 10}));
}

TEST(ImageTargets, TheNumberOfClassesComesFromTheFolders) {
  const TemporaryDirectory folder;
  write_photos(folder);
  const std::string root = folder.path().string();
  const Recipe recipe =
      read_recipe(config::parse_yaml("model: [Flatten, Linear]\n"
                                     "criterion: CrossEntropyLoss\n"
                                     "optimizer: Adam\n"
                                     "num_epochs: 1\n"
                                     "loaders: {train: {batch_size: 2, dataset: "
                                     "{_target_: ImageFolder, root: " +
                                         root + "}}}\n",
                                     "a.yml"));
  EXPECT_EQ(recipe.stages[0].options.model(torch::zeros({5, 3, 12, 10})).size(1), 2);
}

// A folder that is missing does not shift the numbers of the others.
TEST(ImageTargets, OtherFoldersHaveTheClassesOfTheTrainingData) {
  const TemporaryDirectory folder;
  write_photos(folder);
  const auto make = [&](const std::string& classes) {
    return targets().datasets.make(node("{ImageFolder: {root: " + folder.path().string() +
                                        ", train_classes: " + classes + "}}"));
  };
  const auto images = make("[lilies, roses, tulips]");
  EXPECT_THAT(images->class_names(), ::testing::ElementsAre("lilies", "roses", "tulips"));
  EXPECT_EQ(images->size(), 2);
  EXPECT_EQ(images->sample(0)["targets"].item<std::int64_t>(), 1);
  EXPECT_THAT(error_of([&] { make("[roses]"); }), HasSubstr("the folder 'tulips' of"));
}

TEST(ImageTargets, TheTrainLoaderDecidesTheClasses) {
  const TemporaryDirectory train, valid;
  write_photos(train);
  write_photos(valid);
  std::filesystem::remove_all(valid / "roses");
  const auto loader = [](const TemporaryDirectory& folder) {
    return "{dataset: {_target_: ImageFolder, root: " + folder.path().string() + "}}";
  };
  config::Node document = config::parse_yaml(
      "model: [Flatten, Linear]\ncriterion: CrossEntropyLoss\noptimizer: {_target_: SGD, lr: "
      "0.1}\nloaders: {valid: " +
          loader(valid) + ", train: " + loader(train) + "}\n",
      "a.yml");
  const auto target = [](const data::Loader& of) {
    return of.dataset()->sample(0)["targets"].item<std::int64_t>();
  };
  const Recipe recipe = read_recipe(document);
  EXPECT_EQ(target(recipe.stages.at(0).options.loaders.at("valid")), 1) << "a tulip";
  // The run records the classes for an evaluation of other images.
  record_fitted(recipe, document);
  std::filesystem::remove_all(train / "roses");
  EXPECT_EQ(target(read_evaluation(document, {.loader = "valid"}).loader), 1);
  std::filesystem::create_directory(valid / "violets");
  EXPECT_THAT(error_of([&] { read_evaluation(document, {.loader = "valid"}); }),
              HasSubstr("the folder 'violets' of"));
}

TEST(ImageTargets, AModelTakesTheNumberOfClassesFromTheData) {
  const Example example{.input = torch::ones({1, 3, 32, 32}), .classes = 5};
  const Model model = targets().models.make(node("ResNet18"), example);
  EXPECT_EQ(model(torch::ones({2, 3, 32, 32})).size(1), 5);
}

}  // namespace
}  // namespace lockstep::recipe
