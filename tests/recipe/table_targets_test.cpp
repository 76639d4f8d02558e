#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/file.h"
#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

class TableTargets : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static data::DatasetPtr make(const std::string& text) {
    return targets().datasets.make(node(text));
  }

  TemporaryDirectory folder_;
};

TEST_F(TableTargets, ASchemaGoesFromOneFileToTheOther) {
  const std::string schema = (folder_ / "schema.json").string();
  const auto train = make(
      "{_target_: CsvDataset, path: " + put("a.csv", "x,city,y\n1,Bonn,2\n,Oslo,3\n5,Bonn,4\n") +
      ", targets: y, missing: mean, unknown: code, normalize: true, one_hot: true, types: {x: "
      "number}, save_schema: " +
      schema + "}");
  EXPECT_EQ(train->size(), 3);
  const auto valid = make("{_target_: CsvDataset, path: " + put("b.csv", "y,city,x\n1,Rome,7\n") +
                          ", schema: " + schema + "}");
  // The mean is 3 and the standard deviation 2. Rome is none of the cities.
  EXPECT_TRUE(valid->sample(0)["features"].equal(torch::tensor({2.0F, 0.0F, 0.0F})));
}

TEST_F(TableTargets, AMissingSchemaIsFoundAtItsLine) {
  const std::string path = put("a.csv", "x\n1\n");
  EXPECT_THAT(
      error_of([&] { make("{CsvDataset: {path: " + path + ", schema: none.json}}"); }),
      AllOf(HasSubstr("it/CsvDataset/schema: there is no none.json"), HasSubstr("save_schema")));
}

TEST_F(TableTargets, AWrongColumnIsFoundAtItsLine) {
  const std::string path = put("a.csv", "size\n1\n");
  EXPECT_THAT(error_of([&] { make("{CsvDataset: {path: " + path + ", features: [sise]}}"); }),
              AllOf(HasSubstr("it/CsvDataset/features"), HasSubstr("did you mean 'size'")));
}

TEST_F(TableTargets, ColumnsOfAFileWithoutNamesAreNumbers) {
  const std::string path = put("a.tsv", "1\t2\t3\n");
  const auto data =
      make("{_target_: CsvDataset, path: " + path + ", header: false, features: [2], targets: 0}");
  EXPECT_EQ(data->sample(0)["features"].item<float>(), 3);
  EXPECT_EQ(data->sample(0)["targets"].item<float>(), 1);
}

TEST_F(TableTargets, PublishedDataSetsSayWhatIsMissing) {
  const std::string root = "{root: " + folder_.path().string() + "}}";
  for (const auto& [name, missing] : std::vector<std::pair<std::string, std::string>>{
           {"CIFAR10", "no cifar-10-batches-py"},
           {"CIFAR100", "no cifar-100-python"},
           {"KMNIST", "no train-images-idx3-ubyte"},
           {"EMNIST", "no emnist-balanced-train-images-idx3-ubyte"},
           {"QMNIST", "no qmnist-train-images-idx3-ubyte"}}) {
    EXPECT_THAT(error_of([&, &target = name] { make("{" + target + ": " + root); }),
                HasSubstr(missing));
  }
}

TEST_F(TableTargets, PublishedDataSetsTransformTheirTargets) {
  // Zeros are an image of class 0 in the binary versions of CIFAR.
  put("test_batch.bin", std::string(3073, '\0'));
  put("test.bin", std::string(3074, '\0'));
  const auto idx = [&](const std::string& name, const std::string& sizes, std::size_t bytes) {
    put(name, std::string("\0\0\10", 3) + sizes + std::string(bytes, '\0'));
  };
  for (const std::string name : {"t10k", "emnist-balanced-test"}) {
    idx(name + "-images-idx3-ubyte", std::string("\3\0\0\0\1\0\0\0\34\0\0\0\34", 13), 784);
    idx(name + "-labels-idx1-ubyte", std::string("\1\0\0\0\1", 5), 1);
  }
  for (const std::string name : {"CIFAR10", "CIFAR100", "MNIST", "KMNIST", "EMNIST"}) {
    const auto data = make("{" + name + ": {root: " + folder_.path().string() +
                           ", train: false, target_transform: {OneHot: {classes: 100}}}}");
    EXPECT_EQ(data->sample(0)["targets"].sizes(), (torch::IntArrayRef{100})) << name;
  }
}

}  // namespace
}  // namespace lockstep::recipe
