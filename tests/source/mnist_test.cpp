#include "lockstep/source/mnist.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/data/loader.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The folder of Debian's package dataset-fashion-mnist.
const fs::path kFashion = "/usr/share/datasets/fashion-mnist";

// Collects the warnings that are given while it exists.
class Warnings {
 public:
  Warnings() : previous_(set_warning_handler([this](const std::string& w) { text_ += w; })) {}
  ~Warnings() { set_warning_handler(previous_); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  WarningHandler previous_;
};

TEST(Mnist, LoadsWhatIsInTheRoot) {
  const TemporaryDirectory root;
  write_bytes(root / "t10k-images-idx3-ubyte",
              idx(0x08, {2, 28, 28}, std::string(2 * 784, '\377')));
  write_bytes(root / "t10k-labels-idx1-ubyte", idx(0x08, {2}, std::string("\3\11", 2)));
  const Warnings warnings;
  const DatasetPtr test = mnist({.root = root.path(), .train = false});
  const Batch batch = test->gather(std::vector<std::int64_t>{1, 0}, {});
  EXPECT_TRUE(torch::equal(batch["features"], torch::ones({2, 1, 28, 28})));
  EXPECT_TRUE(torch::equal(batch["targets"], torch::tensor({9, 3}, torch::kInt64)));
  EXPECT_EQ(warnings.text(), "");
}

TEST(Mnist, TakesATransform) {
  const TemporaryDirectory root;
  write_bytes(root / "train-images-idx3-ubyte", idx(0x08, {1, 28, 28}, std::string(784, '\377')));
  write_bytes(root / "train-labels-idx1-ubyte", idx(0x08, {1}, std::string("\3", 1)));
  const DatasetPtr train =
      mnist({.root = root.path(),
             .transform = Compose({ToTensor(), Normalize({.mean = {0.5}, .std = {0.25}})})});
  EXPECT_TRUE(torch::equal(train->sample(0)["features"], torch::full({1, 28, 28}, 2.0F)));
}

TEST(Mnist, TakesATransformOfTheTargets) {
  const TemporaryDirectory root;
  write_bytes(root / "train-images-idx3-ubyte", idx(0x08, {1, 28, 28}, std::string(784, '\377')));
  write_bytes(root / "train-labels-idx1-ubyte", idx(0x08, {1}, std::string("\3", 1)));
  const DatasetPtr train = mnist({.root = root.path(), .target_transform = Cast(torch::kFloat32)});
  const Batch batch = train->gather(std::vector<std::int64_t>{0}, {});
  EXPECT_TRUE(torch::equal(batch["targets"], torch::tensor({3.0F})));
  EXPECT_TRUE(torch::equal(batch["features"], torch::ones({1, 1, 28, 28})));
}

TEST(Mnist, IsNeverFashionMnistByItself) {
  const TemporaryDirectory root;
  EXPECT_THAT(
      error_text<DataError>([&] { mnist({.root = root.path()}); }),
      AllOf(HasSubstr("MNIST: no train-images-idx3-ubyte"),
            HasSubstr((root / "MNIST/raw").string()), testing::Not(HasSubstr(kFashion.string()))));
}

class FashionMnist : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(kFashion))
      GTEST_SKIP() << "there is no " << kFashion << "; install dataset-fashion-mnist";
  }
};

TEST_F(FashionMnist, IsFoundWhereDebianPutsIt) {
  const TemporaryDirectory empty;
  const Warnings warnings;
  const DatasetPtr train = fashion_mnist({.root = empty.path()});
  ASSERT_EQ(train->size(), 60'000);
  const Loader loader = {train, {.batch_size = 1000}};
  torch::Tensor counts = torch::zeros({10}, torch::kInt64);
  double sum = 0;
  for (Batch& batch : loader.stream()) {
    counts += batch["targets"].bincount({}, 10);
    sum += batch["features"].sum(torch::kFloat64).item<double>();
  }
  EXPECT_TRUE(torch::equal(counts, torch::full({10}, 6000, torch::kInt64)));
  // The published mean of the training images. Images shifted by a byte would have another.
  EXPECT_NEAR(sum / (60'000 * 784), 0.2860, 5e-5);
  EXPECT_THAT(warnings.text(), HasSubstr("taken from " + kFashion.string()))
      << "the files are not in the named folder";
  EXPECT_EQ(fashion_mnist({.root = empty.path(), .train = false})->size(), 10'000);
}

TEST_F(FashionMnist, UnderTheNameOfMnistIsReported) {
  const Warnings warnings;
  mnist({.root = kFashion, .train = false});
  EXPECT_THAT(warnings.text(), HasSubstr("MNIST was asked for"));
}

}  // namespace
}  // namespace lockstep::data
