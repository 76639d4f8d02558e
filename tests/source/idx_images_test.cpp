#include "lockstep/source/idx_images.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/source/digest.h"
#include "tests/checkpoint/zip.h"
#include "tests/data/error_text.h"
#include "tests/source/idx_files.h"
#include "tests/source/loopback_server.h"
#include "tests/source/zip_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kImages = idx(0x08, {3, 2, 2}, std::string("\0\1\2\3\4\5\6\7\10\11\12\377", 12));
const std::string kLabels = idx(0x08, {3}, std::string("\2\0\1", 3));

std::string checksum_of(const std::string& bytes, Hash hash = Hash::kSha256) {
  Digest digest(hash);
  digest.update(bytes);
  return digest.finish();
}

// Three images of 2 x 2 in three classes.
IdxImages tiny() {
  return {.name = "Tiny",
          .folder = "Tiny",
          .train = {.images = {"images", checksum_of(gzip(kImages))},
                    .labels = {"labels", checksum_of(gzip(kLabels))}},
          .test = {.images = {"test-images", ""}, .labels = {"test-labels", ""}},
          .mirrors = {"http://127.0.0.1:1/"},
          .advice = "buy it",
          .classes = 3,
          .image_size = {2, 2}};
}

class IdxImagesTest : public testing::Test {
 protected:
  void put(const fs::path& name, const std::string& bytes) const {
    fs::create_directories((root_ / name).parent_path());
    write_bytes(root_ / name, bytes);
  }

  DatasetPtr load() const { return load_idx_images(tiny(), {.root = root_.path()}); }
  std::string error() const {
    return error_text<DataError>([this] { load(); });
  }

  static void expect_tiny(const Dataset& dataset) {
    ASSERT_EQ(dataset.size(), 3);
    const Batch batch = dataset.gather(std::vector<std::int64_t>{2, 0}, {});
    EXPECT_EQ(batch["features"].sizes(), (torch::IntArrayRef{2, 1, 2, 2}));
    EXPECT_EQ(batch["features"][0][0][1][1].item<float>(), 1.0F);
    EXPECT_TRUE(torch::equal(batch["targets"], torch::tensor({1, 2}, torch::kInt64)));
  }

  TemporaryDirectory root_;
};

TEST_F(IdxImagesTest, FindsPlainFilesInTheRoot) {
  put("images", kImages);
  put("labels", kLabels);
  expect_tiny(*load());
}

TEST_F(IdxImagesTest, FindsPackedFilesInTorchvisionsLayout) {
  put("Tiny/raw/images.gz", gzip(kImages));
  put("Tiny/raw/labels.gz", gzip(kLabels));
  expect_tiny(*load());
}

TEST_F(IdxImagesTest, FindsFilesOfThePackage) {
  put("package/images", kImages);
  put("package/labels", kLabels);
  IdxImages images = tiny();
  images.system_folders = {root_ / "package"};
  expect_tiny(*load_idx_images(images, {.root = root_ / "none"}));
}

TEST_F(IdxImagesTest, SaysWhatItLookedForAndWhere) {
  EXPECT_THAT(error(), AllOf(HasSubstr("Tiny: no images (or .gz) in "),
                             HasSubstr((root_ / "Tiny/raw").string()), HasSubstr("set download"),
                             HasSubstr("by hand, or buy it")));
}

TEST_F(IdxImagesTest, FetchesWhatIsMissing) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  const LoopbackServer server({{"/images.gz", LoopbackServer::ok(gzip(kImages))},
                               {"/labels.gz", LoopbackServer::ok(gzip(kLabels))}});
  const IdxImagesOptions options{
      .root = root_ / "new", .download = true, .mirrors = {{server.url("")}}};
  testing::internal::CaptureStderr();
  expect_tiny(*load_idx_images(tiny(), options));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("labels.gz"));
  EXPECT_TRUE(fs::exists(root_ / "new/Tiny/raw/images.gz"));
  // Now the files are there, and no mirror is needed.
  expect_tiny(*load_idx_images(tiny(), {.root = root_ / "new"}));
}

// The same data set, published as one archive.
struct PackedTiny {
  PackedTiny() {
    const std::string pixels = gzip(kImages);
    bytes = checkpoint::zip({{.name = "files/images.gz",
                              .content = pixels,
                              .checksum = deflated_entry("", pixels).checksum},
                             deflated_entry("files/labels.gz", gzip(kLabels))});
    images.train = {.images = {.name = "images"}, .labels = {.name = "labels"}};
    images.archive =
        IdxArchive{.name = "all.zip", .md5 = checksum_of(bytes, Hash::kMd5), .folder = "files"};
  }

  std::string bytes;
  IdxImages images = tiny();
};

TEST_F(IdxImagesTest, FetchesAnArchiveOnceAndUnpacksWhatIsNeeded) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  const PackedTiny packed;
  const LoopbackServer server({{"/all.zip", LoopbackServer::ok(packed.bytes)}});
  testing::internal::CaptureStderr();
  expect_tiny(*load_idx_images(
      packed.images, {.root = root_.path(), .download = true, .mirrors = {{server.url("")}}}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("all.zip"));
  EXPECT_EQ(read_file(root_ / "Tiny/raw/images.gz"), gzip(kImages));
  expect_tiny(*load_idx_images(packed.images, {.root = root_.path()}));
  // The archive is still there, so no mirror is needed.
  fs::remove(root_ / "Tiny/raw/labels.gz");
  expect_tiny(*load_idx_images(packed.images, {.root = root_.path(), .download = true}));
}

TEST_F(IdxImagesTest, TakesAnArchiveThatIsThere) {
  const PackedTiny packed;
  put("all.zip", packed.bytes);
  EXPECT_THAT(
      error_text<DataError>([&] { load_idx_images(packed.images, {.root = root_.path()}); }),
      AllOf(HasSubstr("set download"), HasSubstr("or all.zip with download set")));
  expect_tiny(*load_idx_images(packed.images, {.root = root_.path(), .download = true}));
}

TEST_F(IdxImagesTest, RefusesAnArchiveThatIsDamagedOrAnother) {
  ::setenv("no_proxy", "127.0.0.1", 1);
  const PackedTiny packed;
  const LoopbackServer server({{"/all.zip", LoopbackServer::ok("other")}});
  testing::internal::CaptureStderr();
  const std::string other = error_text<DataError>([&] {
    load_idx_images(packed.images,
                    {.root = root_.path(), .download = true, .mirrors = {{server.url("")}}});
  });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(other, HasSubstr("wrong file: MD5 of the 5 bytes"));

  const auto error_with = [&](const std::string& bytes) {
    put("all.zip", bytes);
    return error_text<DataError>(
        [&] { load_idx_images(packed.images, {.root = root_.path(), .download = true}); });
  };
  EXPECT_THAT(error_with(checkpoint::zip({deflated_entry("files/other.gz", "x")})),
              HasSubstr("all.zip: the archive has no 'files/images.gz'"));
  std::string damaged = packed.bytes;
  damaged[damaged.find(gzip(kImages)) + 3] ^= 1;
  EXPECT_THAT(error_with(damaged), HasSubstr("all.zip: damaged: its checksum"));
  EXPECT_FALSE(fs::exists(root_ / "Tiny/raw/images.gz"));
}

TEST_F(IdxImagesTest, DamagedArchivesAreErrorsOrImages) {
  const PackedTiny packed;
  const auto read = [&](const fs::path&) {
    fs::remove_all(root_ / "Tiny");
    load_idx_images(packed.images, {.root = root_.path(), .download = true});
  };
  EXPECT_GT(refused_if_damaged<DataError>(packed.bytes, root_ / "all.zip", read), 10);
}

TEST_F(IdxImagesTest, WithoutAChecksumNothingIsFetched) {
  const IdxImagesOptions options{.root = root_.path(), .train = false, .download = true};
  EXPECT_THAT(error_text<DataError>([&] { load_idx_images(tiny(), options); }),
              AllOf(HasSubstr("Tiny: no test-images (or .gz) in "),
                    testing::Not(HasSubstr("set download"))));
}

TEST_F(IdxImagesTest, TransformsTargets) {
  put("images", kImages);
  put("labels", kLabels);
  const DatasetPtr dataset =
      load_idx_images(tiny(), {.root = root_.path(), .target_transform = Cast(torch::kFloat32)});
  EXPECT_TRUE(torch::equal(dataset->sample(0)["targets"], torch::tensor(2.0F)));
}

TEST_F(IdxImagesTest, SaysWhatToDoWhereNothingCanBeFetched) {
  const IdxImagesOptions options{
      .root = root_.path(), .download = true, .mirrors = {{"http://127.0.0.1:1/"}}};
  testing::internal::CaptureStderr();
  const std::string text = error_text<DataError>([&] { load_idx_images(tiny(), options); });
  testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, AllOf(HasSubstr("http://127.0.0.1:1/images.gz: Failed to connect"),
                          HasSubstr("by hand, or buy it")));
}

TEST_F(IdxImagesTest, NamesTheFirstBadLabel) {
  put("images", kImages);
  put("labels", idx(0x08, {3}, std::string("\2\3\7", 3)));
  EXPECT_EQ(error(), (root_ / "labels").string() + ": label 1 is 3, expected 0 to 2");
}

TEST_F(IdxImagesTest, RefusesFilesThatDoNotBelongTogether) {
  put("images", kImages);
  put("labels", idx(0x08, {2}, std::string("\2\1", 2)));
  EXPECT_THAT(error(), AllOf(HasSubstr("has 3 images"), HasSubstr("has 2 labels")));
}

TEST_F(IdxImagesTest, RefusesImagesOfAnotherShape) {
  put("labels", kLabels);
  put("images", idx(0x08, {3, 2, 1}, "abcdef"));
  EXPECT_THAT(error(), HasSubstr("expected images, Byte [N, 2, 2], got Byte [3, 2, 1]"));
  put("images", kLabels);
  EXPECT_THAT(error(), HasSubstr("got Byte [3]"));
}

TEST_F(IdxImagesTest, RefusesLabelsOfAnotherShape) {
  put("images", kImages);
  put("labels", idx(0x0c, {1}, std::string("\0\0\0\1", 4)));
  EXPECT_THAT(error(), HasSubstr("expected labels, Byte [N], got Int [1]"));
}

}  // namespace
}  // namespace lockstep::data
