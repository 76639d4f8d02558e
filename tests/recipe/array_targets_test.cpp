#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/config/override.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/source/npy.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

void save_npy(const std::filesystem::path& path, const torch::Tensor& array) {
  data::NpyFile file(path, array.scalar_type(), array.sizes().vec());
  file.append(array);
  file.finish();
}

// A config of examples/configs, which trains in this process.
TrainResult train_example(const char* name, std::vector<std::string> overrides) {
  const auto sources = std::filesystem::path(LOCKSTEP_GOLDENS).parent_path().parent_path();
  config::Node document = config::load_yaml(sources / "examples/configs" / name);
  for (const char* const quiet : {"console=false", "ddp=true", "workers=1", "shards=2"}) {
    overrides.emplace_back(quiet);
  }
  for (const std::string& argument : overrides) config::apply_override(document, argument);
  return run_recipe(read_recipe(document));
}

double loss_of(const TrainResult& result, std::int64_t epoch) {
  return result.history.at(epoch).at("train").at("loss");
}

TEST(ArrayTargets, ArraysAreMadeByName) {
  const TemporaryDirectory folder;
  save_npy(folder / "x.npy", torch::arange(6, torch::kFloat32).reshape({3, 2}));
  save_npy(folder / "y.npy", torch::arange(3));
  const std::string x = (folder / "x.npy").string(), y = (folder / "y.npy").string();
  const auto dataset =
      targets().datasets.make(node("{ArrayDataset: {features: " + x + ", targets: " + y + "}}"));
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->sample(2)["targets"].item<std::int64_t>(), 2);
  const auto keys = targets().datasets.make(
      node("{_target_: ArrayDataset, keys: {image: " + x + ", label: " + y + "}}"));
  EXPECT_TRUE(keys->sample(1)["image"].equal(torch::tensor({2.F, 3.F})));
  EXPECT_THAT(error_of([] { targets().datasets.make(node("ArrayDataset")); }),
              HasSubstr("features: expected an array, got none"));
}

TEST(ArrayTargets, TextIsMadeByName) {
  const TemporaryDirectory folder;
  write_file_atomically(folder / "a.txt", "abcdefgh");
  const std::string path = (folder / "a.txt").string();
  const auto dataset =
      targets().datasets.make(node("{TextDataset: {path: " + path + ", window: 3, stride: 2}}"));
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(dataset->sample(1)["features"][0].item<std::int64_t>(), 'c');
  EXPECT_EQ(
      targets()
          .datasets.make(node("{TextDataset: {paths: [" + path + ", " + path + "], window: 7}}"))
          ->size(),
      2);
  EXPECT_THAT(error_of([&] {
                targets().datasets.make(node("{TextDataset: {path: " + path + ", window: 0}}"));
              }),
              HasSubstr("window: expected a positive integer, got 0"));
}

TEST(ArrayTargets, TheExampleOfArraysTrains) {
  const TemporaryDirectory folder;
  torch::manual_seed(1);
  for (const std::string part : {"train", "valid"}) {
    const torch::Tensor x = torch::randn({part == "train" ? 400 : 100, 8});
    save_npy(folder / (part + "_x.npy"), x);
    save_npy(folder / (part + "_y.npy"), (x.select(1, 0) > x.select(1, 1)).to(torch::kInt64));
  }
  std::vector<std::string> overrides = {"logdir=" + (folder / "logs").string()};
  for (const std::string part : {"train", "valid"}) {
    const std::string loader = "loaders." + part + ".dataset.";
    overrides.push_back(loader + "features=" + (folder / (part + "_x.npy")).string());
    overrides.push_back(loader + "targets=" + (folder / (part + "_y.npy")).string());
  }
  const TrainResult result = train_example("arrays.yml", overrides);
  EXPECT_GT(result.last_metrics.at("valid").at("accuracy01"), 0.9);
}

TEST(ArrayTargets, TheExampleOfTextTrains) {
  const TemporaryDirectory folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat. ";
  write_file_atomically(folder / "a.txt", text);
  write_file_atomically(folder / "b.txt", "the mat sat on the cat. the cat sat. ");
  const TrainResult result = train_example(
      "text.yml", {"loaders.train.dataset.path=" + (folder / "a.txt").string(),
                   "loaders.valid.dataset.path=" + (folder / "b.txt").string(),
                   "loaders.train.dataset.window=16", "loaders.valid.dataset.window=16",
                   "loaders.train.batch_size=8", "model.width=32", "model.layers=1",
                   "optimizer.lr=0.01", "num_epochs=4", "logdir=" + (folder / "logs").string()});
  EXPECT_LT(loss_of(result, 4), 0.7 * loss_of(result, 1));
}

}  // namespace
}  // namespace lockstep::recipe
