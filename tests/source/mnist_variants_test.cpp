#include "lockstep/source/mnist_variants.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/checkpoint/zip.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"
#include "tests/source/loopback_server.h"
#include "tests/source/zip_files.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MnistVariants : public testing::Test {
 protected:
  void put(const fs::path& name, const std::string& bytes) const {
    fs::create_directories((root_ / name).parent_path());
    write_bytes(root_ / name, bytes);
  }

  // Image i has the value i in its pixel (0, 1).
  void put_images(const fs::path& name, std::uint32_t count) const {
    std::string pixels(count * 784, '\0');
    for (std::uint32_t i = 0; i < count; ++i) pixels[i * 784 + 1] = static_cast<char>(i);
    put(name, idx(0x08, {count, 28, 28}, pixels));
  }

  // Label i has the class i % 10, and i in its last column.
  void put_wide_labels(const fs::path& name, std::uint32_t count) const {
    std::string numbers;
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t column = 0; column < 8; ++column) {
        const std::uint32_t value = column == 0 ? i % 10 : column == 7 ? i : 0;
        for (int shift = 24; shift >= 0; shift -= 8) numbers += static_cast<char>(value >> shift);
      }
    }
    put(name, idx(0x0c, {count, 8}, numbers));
  }

  TemporaryDirectory root_;
};

TEST_F(MnistVariants, KmnistIsFoundInTorchvisionsFolder) {
  put_images("KMNIST/raw/t10k-images-idx3-ubyte", 2);
  put("KMNIST/raw/t10k-labels-idx1-ubyte", idx(0x08, {2}, "\4\7"));
  const DatasetPtr test = kmnist({.root = root_.path(), .train = false});
  EXPECT_EQ(test->size(), 2);
  EXPECT_EQ(test->sample(1)["targets"].item<std::int64_t>(), 7);
  const DatasetPtr changed =
      kmnist({.root = root_.path(), .train = false, .target_transform = Cast(torch::kFloat32)});
  EXPECT_TRUE(torch::equal(changed->sample(1)["targets"], torch::tensor(7.0F)));
}

TEST_F(MnistVariants, KmnistComparesTheChecksumOfTorchvision) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  const LoopbackServer server({{"/train-images-idx3-ubyte.gz", LoopbackServer::ok("other")}});
  testing::internal::CaptureStderr();
  const std::string text = error_text<DataError>(
      [&] { kmnist({.root = root_.path(), .download = true, .mirrors = {{server.url("")}}}); });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("expected bdb82020997e1d708af4cf47b453dcf7"));
}

TEST_F(MnistVariants, EmnistHasTheClassesOfItsSplit) {
  put_images("EMNIST/raw/emnist-letters-train-images-idx3-ubyte", 2);
  put("EMNIST/raw/emnist-letters-train-labels-idx1-ubyte", idx(0x08, {2}, "\1\32"));
  const DatasetPtr letters = emnist({.root = root_.path(), .split = "letters"});
  EXPECT_EQ(letters->sample(1)["targets"].item<std::int64_t>(), 26);
  // As in the file: it is not transposed.
  EXPECT_EQ(letters->sample(1)["features"][0][0][1].item<float>(), 1.0F / 255.0F);
  const DatasetPtr changed =
      emnist({.root = root_.path(), .split = "letters", .target_transform = Cast(torch::kFloat32)});
  EXPECT_TRUE(torch::equal(changed->sample(1)["targets"], torch::tensor(26.0F)));

  put_images("EMNIST/raw/emnist-digits-test-images-idx3-ubyte", 1);
  put("EMNIST/raw/emnist-digits-test-labels-idx1-ubyte", idx(0x08, {1}, "\12"));
  EXPECT_THAT(error_text<DataError>(
                  [&] { emnist({.root = root_.path(), .split = "digits", .train = false}); }),
              HasSubstr("label 0 is 10, expected 0 to 9"));
}

TEST_F(MnistVariants, EmnistSaysWhatIsMissing) {
  EXPECT_THAT(error_text<DataError>([&] { emnist({.root = root_.path()}); }),
              AllOf(HasSubstr("no emnist-balanced-train-images-idx3-ubyte"),
                    HasSubstr("set download"), HasSubstr("gzip.zip")));
  EXPECT_THAT(error_text<ConfigError>([&] { emnist({.root = root_.path(), .split = "letter"}); }),
              AllOf(HasSubstr("split: EMNIST has no 'letter'"), HasSubstr("'letters'")));
}

// Archives of other bytes are refused; one that is there is unpacked.
TEST_F(MnistVariants, EmnistComesFromItsArchive) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  const LoopbackServer server({{"/gzip.zip", LoopbackServer::ok("other")}});
  testing::internal::CaptureStderr();
  const std::string text = error_text<DataError>(
      [&] { emnist({.root = root_.path(), .download = true, .mirrors = {{server.url("")}}}); });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("expected 58c8d27c78d21e728a6bc7b3cc06412e"));

  const std::string images = gzip(idx(0x08, {1, 28, 28}, std::string(784, '\1')));
  const std::string labels = gzip(idx(0x08, {1}, "\3"));
  put("gzip.zip",
      checkpoint::zip({deflated_entry("gzip/emnist-mnist-test-images-idx3-ubyte.gz", images),
                       deflated_entry("gzip/emnist-mnist-test-labels-idx1-ubyte.gz", labels)}));
  const DatasetPtr test =
      emnist({.root = root_.path(), .split = "mnist", .train = false, .download = true});
  EXPECT_EQ(test->sample(0)["targets"].item<std::int64_t>(), 3);
  EXPECT_TRUE(fs::exists(root_ / "EMNIST/raw/emnist-mnist-test-labels-idx1-ubyte.gz"));
}

TEST_F(MnistVariants, QmnistGivesClassesOrAllColumns) {
  put_images("QMNIST/raw/qmnist-train-images-idx3-ubyte", 12);
  put_wide_labels("QMNIST/raw/qmnist-train-labels-idx2-int", 12);
  const DatasetPtr classes = qmnist({.root = root_.path()});
  EXPECT_TRUE(torch::equal(classes->gather(std::vector<std::int64_t>{11, 2}, {})["targets"],
                           torch::tensor({1, 2}, torch::kInt64)));
  const DatasetPtr all = qmnist({.root = root_.path(), .compat = false});
  EXPECT_TRUE(torch::equal(all->sample(11)["targets"],
                           torch::tensor({1, 0, 0, 0, 0, 0, 0, 11}, torch::kInt64)));
  const DatasetPtr changed =
      qmnist({.root = root_.path(), .target_transform = Cast(torch::kFloat32)});
  EXPECT_TRUE(torch::equal(changed->sample(2)["targets"], torch::tensor(2.0F)));
}

TEST_F(MnistVariants, QmnistHasPartsOfItsTestSet) {
  put_images("qmnist-test-images-idx3-ubyte", 10'003);
  put_wide_labels("qmnist-test-labels-idx2-int", 10'003);
  EXPECT_EQ(qmnist({.root = root_.path(), .train = false})->size(), 10'003);
  EXPECT_EQ(qmnist({.root = root_.path(), .what = "test10k"})->size(), 10'000);
  const DatasetPtr rest = qmnist({.root = root_.path(), .what = "test50k", .compat = false});
  ASSERT_EQ(rest->size(), 3);
  EXPECT_EQ(rest->sample(0)["targets"][7].item<std::int64_t>(), 10'000);
}

TEST_F(MnistVariants, QmnistsPartNistIsUnpackedByHand) {
  const QmnistOptions options{.root = root_.path(), .what = "nist", .download = true};
  EXPECT_THAT(error_text<DataError>([&] { qmnist(options); }),
              AllOf(HasSubstr("no xnist-images-idx3-ubyte"), HasSubstr("xz -d"),
                    HasSubstr("qmnist/master/xnist-labels-idx2-int.xz")));
  put_images("QMNIST/raw/xnist-images-idx3-ubyte", 2);
  put_wide_labels("QMNIST/raw/xnist-labels-idx2-int", 2);
  EXPECT_EQ(qmnist(options)->size(), 2);
}

TEST_F(MnistVariants, QmnistRefusesOtherParts) {
  EXPECT_THAT(error_text<ConfigError>([&] { qmnist({.root = root_.path(), .what = "test1k"}); }),
              HasSubstr("what: QMNIST has no 'test1k'"));
  put_images("qmnist-train-images-idx3-ubyte", 1);
  put("qmnist-train-labels-idx2-int", idx(0x08, {1}, "\1"));
  EXPECT_THAT(error_text<DataError>([&] { qmnist({.root = root_.path()}); }),
              HasSubstr("expected labels, Int [N, 8], got Byte [1]"));
}

}  // namespace
}  // namespace lockstep::data
