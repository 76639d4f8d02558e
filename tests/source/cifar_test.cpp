#include "lockstep/source/cifar.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "tests/data/error_text.h"
#include "tests/source/cifar_files.h"
#include "tests/source/idx_files.h"
#include "tests/source/loopback_server.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Red is 255 in the first row, green is 51, blue is 0. The second image is black.
std::string two_images() {
  std::string pixels(2 * 3072, '\0');
  pixels.replace(0, 32, 32, '\xff');
  pixels.replace(1024, 1024, 1024, '\x33');
  return pixels;
}

class CifarTest : public testing::Test {
 protected:
  void put(const fs::path& name, const std::string& bytes) const {
    fs::create_directories((root_ / name).parent_path());
    write_bytes(root_ / name, bytes);
  }

  std::string error() const {
    return error_text<DataError>([this] { cifar10({.root = root_.path(), .train = false}); });
  }

  static void expect_two(const Dataset& dataset) {
    ASSERT_EQ(dataset.size(), 2);
    const Batch batch = dataset.gather(std::vector<std::int64_t>{0, 1}, {});
    EXPECT_TRUE(torch::equal(batch["targets"], torch::tensor({3, 9}, torch::kInt64)));
    torch::Tensor expected = torch::zeros({2, 3, 32, 32});
    expected[0][0][0].fill_(1.0F);
    expected[0][1].fill_(51.0F / 255.0F);
    EXPECT_TRUE(torch::equal(batch["features"], expected));
  }

  TemporaryDirectory root_;
};

TEST_F(CifarTest, FindsTheFoldersOfTorchvision) {
  put("cifar-10-batches-py/test_batch", cifar_pickle("labels", {3, 9}, two_images()));
  expect_two(*cifar10({.root = root_.path(), .train = false}));
  expect_two(*cifar10({.root = root_ / "cifar-10-batches-py", .train = false}));
  put("cifar-100-python/test", cifar_pickle("fine_labels", {3, 9}, two_images()));
  expect_two(*cifar100({.root = root_.path(), .train = false}));
}

TEST_F(CifarTest, PutsTheFilesOfATrainingSetInTheirOrder) {
  for (std::uint8_t i = 1; i <= 5; ++i) {
    put(fmt::format("cifar-10-batches-py/data_batch_{}", i),
        cifar_pickle("labels", {i, 0}, two_images()));
  }
  const DatasetPtr train = cifar10({.root = root_.path()});
  ASSERT_EQ(train->size(), 10);
  for (std::int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(train->sample(2 * i)["targets"].item<std::int64_t>(), i + 1);
  }
}

TEST_F(CifarTest, FindsTheBinaryVersion) {
  const std::string images = two_images();
  put("cifar-10-batches-bin/test_batch.bin",
      "\x03" + images.substr(0, 3072) + "\x09" + images.substr(3072));
  expect_two(*cifar10({.root = root_.path(), .train = false}));
  // A coarse class comes before the fine one.
  put("cifar-100-binary/test.bin",
      "\x01\x03" + images.substr(0, 3072) + "\x02\x09" + images.substr(3072));
  expect_two(*cifar100({.root = root_.path(), .train = false}));
}

TEST_F(CifarTest, ReadsTheArchive) {
  put("cifar-10-python.tar.gz",
      gzip(tar_archive(
          {{"cifar-10-batches-py/readme.html", "hello"},
           {"cifar-10-batches-py/test_batch", cifar_pickle("labels", {3, 9}, two_images())}})));
  expect_two(*cifar10({.root = root_.path(), .train = false}));
}

TEST_F(CifarTest, TakesATransform) {
  put("test_batch", cifar_pickle("labels", {3, 9}, two_images()));
  const DatasetPtr test = cifar10({.root = root_.path(), .train = false, .transform = {}});
  EXPECT_EQ(test->sample(0)["features"].sizes(), (torch::IntArrayRef{32, 32, 3}));
}

TEST_F(CifarTest, RefusesADownloadWithAnotherChecksum) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  const LoopbackServer server({{"/cifar-10-python.tar.gz", LoopbackServer::ok("other")}});
  testing::internal::CaptureStderr();
  const std::string text = error_text<DataError>(
      [&] { cifar10({.root = root_.path(), .download = true, .mirrors = {{server.url("")}}}); });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(text,
              AllOf(HasSubstr("wrong file: MD5 of the 5 bytes is"),
                    HasSubstr("expected c58f30108f718f92721af3b95e74349a"), HasSubstr("by hand")));
  EXPECT_FALSE(fs::exists(root_ / "cifar-10-python.tar.gz"));
}

TEST_F(CifarTest, TransformsTargets) {
  put("test_batch", cifar_pickle("labels", {3, 9}, two_images()));
  const DatasetPtr test =
      cifar10({.root = root_.path(), .train = false, .target_transform = Cast(torch::kFloat32)});
  EXPECT_TRUE(torch::equal(test->sample(1)["targets"], torch::tensor(9.0F)));
}

TEST_F(CifarTest, SaysWhatItLookedFor) {
  EXPECT_THAT(error(), AllOf(HasSubstr("CIFAR-10: no cifar-10-batches-py"),
                             HasSubstr(root_.path().string()), HasSubstr("set download")));
}

TEST_F(CifarTest, NamesTheFileAndWhatIsWrongInIt) {
  const std::string name = "cifar-10-batches-py/test_batch";
  put(name, cifar_pickle("labels", {3, 10}, two_images()));
  EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("label 1 is 10, expected 0 to 9")));
  put(name, cifar_pickle("fine_labels", {3, 9}, two_images()));
  EXPECT_THAT(error(), HasSubstr("expected an array 'data' and a list 'labels'"));
  put(name, "}.");
  EXPECT_THAT(error(), HasSubstr("got only other values"));
  put(name, cifar_pickle("labels", {}, ""));
  EXPECT_THAT(error(), AllOf(HasSubstr(name), HasSubstr("the file has no images")));
  fs::remove(root_ / name);
  put("test_batch.bin", std::string(3000, 'x'));
  EXPECT_THAT(error(), HasSubstr("expected images of 3073 bytes each"));
}

TEST_F(CifarTest, SurvivesDamage) {
  const auto refused = [&](const char* name, const std::string& good) {
    return refused_if_damaged<DataError>(good, root_ / name, [&](const fs::path&) {
      cifar10({.root = root_.path(), .train = false});
    });
  };
  const std::string pickle = cifar_pickle("labels", {3, 9}, two_images());
  EXPECT_GT(refused("test_batch", pickle), 10);
  fs::remove(root_ / "test_batch");
  const std::string archive = gzip(tar_archive({{"cifar-10-batches-py/test_batch", pickle}}));
  EXPECT_GT(refused("cifar-10-python.tar.gz", archive), 30);
  EXPECT_GT(refused("test_batch.bin", std::string(2 * 3073, '\1')), 10);
}

}  // namespace
}  // namespace lockstep::data
