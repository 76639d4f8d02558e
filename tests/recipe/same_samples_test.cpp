#include "lockstep/recipe/same_samples.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/source/npy.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

data::Loader loader_of(const config::Node& loader) {
  const data::DatasetPtr dataset = make_dataset(*loader.find("dataset"));
  data::LoaderOptions options;
  if (const config::Node* const sampler = loader.find("sampler")) {
    options.sampler = targets().samplers.make(*sampler, SampledData(dataset, 1));
  }
  return {dataset, options};
}

// Whether loaders with these options share samples.
bool share(const std::string& train, const std::string& valid) {
  const MadeDatasets made;
  const config::Node loaders = node("{train: {" + train + "}, valid: {" + valid + "}}");
  data::Loaders read;
  for (const auto& [name, loader] : loaders.entries()) read.set(name, loader_of(loader));
  const std::string message = error_of([&] { check_training_data(loaders, read, made); });
  if (!message.empty()) {
    EXPECT_THAT(message, HasSubstr("it/valid/dataset: has samples of loader 'train'"));
  }
  return !message.empty();
}

const std::string kNoiseData = "{Noise: {samples: 10, shape: 2}}";

std::string subset(int first, int count) {
  return fmt::format("{{Subset: {{first: {}, count: {}, dataset: {}}}}}", first, count, kNoiseData);
}

TEST(SameSamples, AreFoundInsideOfOtherDataSets) {
  const std::string train = "dataset: " + kNoiseData;
  EXPECT_TRUE(share(train, "dataset: {Cached: {memory: 100000, dataset: " + kNoiseData + "}}"));
  EXPECT_TRUE(share(
      "dataset: {Concat: {datasets: [" + kNoiseData + ", {Noise: {shape: 2, seed: 7}}]}}", train));
  EXPECT_TRUE(share(train, "dataset: {Noise: {samples: 10, shape: 2, seed: " +
                               targets().datasets.info("Noise").fields.back().fallback + "}}"))
      << "the default";
  EXPECT_FALSE(share(train, "dataset: {Noise: {samples: 10, shape: 2, seed: 7}}"));
}

TEST(SameSamples, PartsOfOneSourceMayDiffer) {
  EXPECT_FALSE(share("dataset: " + subset(0, 8), "dataset: " + subset(8, 2)));
  EXPECT_FALSE(share("dataset: " + subset(0, 8), "dataset: " + subset(-2, 2)));
  EXPECT_TRUE(share("dataset: " + subset(0, 8), "dataset: " + subset(7, 2)));
  // Samples 2 to 5 of the second data set of the two.
  const std::string across =
      "dataset: {Subset: {first: 12, count: 4, dataset: {Concat: {datasets: "
      "[{Noise: {samples: 10, shape: 2, seed: 7}}, " +
      kNoiseData + "]}}}}";
  EXPECT_TRUE(share(across, "dataset: " + subset(5, 3)));
  EXPECT_FALSE(share(across, "dataset: " + subset(6, 3)));
}

// In a later epoch another sampler may choose what it did not choose in the first one.
TEST(SameSamples, OfSamplersInAnyEpoch) {
  const auto with = [](const std::string& sampler) {
    return "dataset: " + kNoiseData + ", sampler: {" + sampler + "}";
  };
  EXPECT_FALSE(share(with("SubsetRandomSampler: {indices: [0, 1, 2]}"),
                     with("SubsetRandomSampler: {indices: [3, 4]}")));
  EXPECT_TRUE(share(with("SubsetRandomSampler: {indices: [0, 1, 2]}"),
                    with("SubsetRandomSampler: {indices: [2, 4]}")));
  EXPECT_TRUE(share(with("SubsetRandomSampler: {indices: [0, 1, 2]}"), "dataset: " + subset(2, 3)));
  EXPECT_FALSE(
      share(with("SubsetRandomSampler: {indices: [0, 1, 2]}"), "dataset: " + subset(3, 3)));
  EXPECT_TRUE(share(with("MiniEpochSampler: {mini_epoch_length: 2, shuffle: none}"),
                    with("SubsetRandomSampler: {indices: [5, 6]}")));
}

TEST(SameSamples, OfOneFileWithOtherOptions) {
  const TemporaryDirectory folder;
  std::ofstream(folder / "a.csv") << "x,y\n1,2\n3,4\n";
  std::ofstream(folder / "b.csv") << "x,y\n1,2\n3,4\n";
  const auto table = [&](const std::string& path, const std::string& more) {
    return "dataset: {CsvDataset: {path: " + folder.path().string() + "/" + path + more + "}}";
  };
  EXPECT_TRUE(share(table("a.csv", ", targets: y"), table("./a.csv", ", normalize: true")));
  EXPECT_FALSE(share(table("a.csv", ""), table("b.csv", "")));
}

struct Divided {
  double train_fraction = 0.5;
  std::string part = "all";
};

TEST(SameSamples, PartsOfDifferentDivisionsShareThem) {
  if (!targets().datasets.contains("Divided")) {
    targets().datasets.add<Divided>(
        "Divided", "For tests.",
        {{"train_fraction", &Divided::train_fraction, "of it"}, {"part", &Divided::part, "of it"}},
        [](const Divided&) { return make_dataset(node(kNoiseData)); });
  }
  const auto part = [](const std::string& name, const std::string& fraction) {
    return "dataset: {Divided: {part: " + name + ", train_fraction: " + fraction + "}}";
  };
  EXPECT_FALSE(share(part("train", "0.8"), part("valid", "0.8")));
  EXPECT_TRUE(share(part("train", "0.8"), part("valid", "0.6")));
  EXPECT_TRUE(share(part("train", "0.8"), part("train", "0.6")));
}

TEST(SameSamples, OfArraysInEachWayToWriteThem) {
  const TemporaryDirectory folder;
  for (const char* const name : {"x.npy", "other.npy", "grid.npy"}) {
    data::NpyFile file(folder / name, torch::kFloat, {4, 2});
    file.append(torch::rand({4, 2}));
    file.finish();
  }
  const std::string place = folder.path().string() + "/";
  const std::string train = "{ArrayDataset: {features: " + place + "x.npy}}";
  EXPECT_TRUE(
      share("dataset: " + train, "dataset: {ArrayDataset: {features: " + place + "./x.npy}}"));
  EXPECT_TRUE(share("dataset: " + train,
                    "dataset: {ArrayDataset: {keys: {features: " + place + "x.npy}}}"));
  EXPECT_FALSE(
      share("dataset: " + train, "dataset: {ArrayDataset: {features: " + place + "other.npy}}"));
  // Side by side with something that all samples have in common.
  const auto merged = [&](const std::string& first, const std::string& second) {
    const std::string start = "{ArrayDataset: {keys: {";
    return "dataset: {Merge: {datasets: [" + start + "a: " + place + first + "}}}, " + start +
           "b: " + place + second + "}}}]}}";
  };
  EXPECT_FALSE(share(merged("grid.npy", "x.npy"), merged("grid.npy", "other.npy")));
  EXPECT_TRUE(share(merged("grid.npy", "x.npy"), merged("x.npy", "grid.npy")));
}

TEST(SameSamples, AnOptionThatChoosesNoSamplesMakesNoDifference) {
  EXPECT_TRUE(
      share("dataset: " + kNoiseData, "dataset: {Noise: {samples: 10, shape: [2], classes: 3}}"));
}

TEST(SameSamples, MayBeAllowed) {
  EXPECT_FALSE(
      share("dataset: " + kNoiseData, "allow_training_data: true, dataset: " + kNoiseData));
}

}  // namespace
}  // namespace lockstep::recipe
