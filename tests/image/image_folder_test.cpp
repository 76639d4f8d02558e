#include "lockstep/image/image_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
#include "lockstep/transform/crop.h"
#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A random part of 24 x 24, resized to 16 x 16.
class RandomWindow : public WindowTransform {
 public:
  bool is_random() const override { return true; }
  Window window(const ImageSize& image, Draw& draw) const override {
    return {.top = static_cast<double>(draw.random.below(image.height - 23)),
            .left = static_cast<double>(draw.random.below(image.width - 23)),
            .height = 24,
            .width = 24,
            .size = {16, 16}};
  }
};

class RandomBrightness : public SampleTransform {
 public:
  bool is_random() const override { return true; }
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override {
    return sample.to(torch::kFloat32).mul_(draw.random.uniform(0.5, 1)).floor_().to(torch::kUInt8);
  }
};

// Two classes with three images each, of all formats and several sizes.
void write_images(const std::filesystem::path& root) {
  testing::write_bytes(root / "cats/a.jpg", testing::jpeg_file(testing::waves(50, 40)));
  testing::write_bytes(root / "cats/b.png", testing::png_file(testing::waves(40, 60)));
  testing::write_bytes(root / "cats/c.tif", testing::tiff_file(testing::waves(33, 44)));
  testing::write_bytes(root / "dogs/a.webp", testing::webp_file(testing::gradient(36, 36)));
  testing::write_bytes(root / "dogs/b.jpeg",
                       testing::jpeg_file(testing::gradient(48, 30), {.orientation = 6}));
  testing::write_bytes(root / "dogs/c.png",
                       testing::png_file(testing::gradient(30, 31).narrow(2, 0, 1)));
}

const std::vector<std::int64_t> kAll = {0, 1, 2, 3, 4, 5};

Compose window_and_floats() {
  return Compose({RandomWindow(), RandomBrightness(), ToTensor(),
                  Normalize({.mean = {0.4, 0.5, 0.6}, .std = {0.2, 0.25, 0.3}})});
}

TEST(ImageFolder, SamplesAndClasses) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto images = image_folder({.root = folder.path(), .transform = window_and_floats()});
  EXPECT_EQ(images->size(), 6);
  EXPECT_THAT(images->classes(), ElementsAre("cats", "dogs"));
  EXPECT_EQ(images->class_names(), images->classes());
  EXPECT_EQ(images->paths()[4], folder / "dogs/b.jpeg");
  EXPECT_THAT(images->targets(), ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_TRUE(images->column("targets").equal(torch::tensor({0, 0, 0, 1, 1, 1}, torch::kInt64)));
  EXPECT_FALSE(images->column("features").defined());
  EXPECT_TRUE(images->is_random());
  EXPECT_EQ(images->name_of(0), "sample 0 (" + (folder / "cats/a.jpg").string() + ")");
  EXPECT_EQ(images->describe(), "6 images of 2 classes in " + folder.path().string());

  const Batch batch = images->gather_in_epoch(kAll, {.seed = 3, .epoch = 2}, {});
  EXPECT_EQ(batch["features"].sizes(), (torch::IntArrayRef{6, 3, 16, 16}));
  EXPECT_TRUE(batch["targets"].equal(torch::tensor({0, 0, 0, 1, 1, 1}, torch::kInt64)));
}

TEST(ImageFolder, TheTrainingDataNumberTheClasses) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const std::vector<std::string> trained = {"ants", "bees", "dogs"};
  EXPECT_THAT(error_text<DataError>(
                  [&] { image_folder({.root = folder.path(), .train_classes = trained}); }),
              HasSubstr("the folder 'cats' of"));
  const auto images =
      image_folder({.root = folder.path(), .classes = {"dogs"}, .train_classes = trained});
  EXPECT_EQ(images->class_names(), trained);
  EXPECT_THAT(images->targets(), ElementsAre(2, 2, 2));
}

TEST(ImageFolder, WithoutTargetsTheFoldersHaveNoMeaning) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto images = image_folder({.root = folder.path(),
                                    .transform = window_and_floats(),
                                    .train_classes = {"ants", "bees"},
                                    .without_targets = true});
  EXPECT_EQ(images->size(), 6);
  EXPECT_THAT(images->class_names(), ElementsAre("ants", "bees"));
  EXPECT_THAT(images->gather_in_epoch(kAll, {}, {}).keys(), ElementsAre("features"));
  EXPECT_THAT(images->sample(0).keys(), ElementsAre("features"));
  EXPECT_FALSE(images->column("targets").defined());
}

TEST(ImageFolder, ABatchHasTheSamplesAndTheirRandomNumbers) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto images = image_folder({.root = folder.path(), .transform = window_and_floats()});
  const EpochKey key{.seed = 3, .epoch = 2};
  const Batch batch = images->gather_in_epoch(kAll, key, {});
  const std::vector<std::int64_t> some = {5, 1, 1};
  const Batch other = images->gather_in_epoch(some, key, {});
  for (std::size_t k = 0; k < some.size(); ++k) {
    const torch::Tensor wanted = batch["features"].select(0, some[k]);
    EXPECT_TRUE(other["features"].select(0, static_cast<std::int64_t>(k)).equal(wanted));
    const Batch sample = images->sample_in_epoch(some[k], key);
    EXPECT_TRUE(sample["features"].equal(wanted));
    EXPECT_EQ(sample["targets"].item<std::int64_t>(), some[k] < 3 ? 0 : 1);
  }
  const Batch next = images->gather_in_epoch(kAll, {.seed = 3, .epoch = 3}, {});
  EXPECT_FALSE(next["features"].equal(batch["features"]));
}

// The steps one by one, on whole images. RandomWindow reads JPEGs at their full scale, so the bits
// are the same.
TEST(ImageFolder, AWindowIsDecodedAsTheTransformWouldCutIt) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto images = image_folder({.root = folder.path(), .transform = window_and_floats()});
  const EpochKey key{.seed = 7, .epoch = 1};
  const Batch batch = images->gather_in_epoch(kAll, key, {});
  for (const std::int64_t i : kAll) {
    const std::string file = read_file(images->paths()[static_cast<std::size_t>(i)]);
    Draw draw{.random = SampleRandom(key, i)};
    const torch::Tensor part = RandomWindow().apply(decode(testing::bytes_of(file)), draw);
    const torch::Tensor changed = RandomBrightness().apply(part, draw);
    const torch::Tensor floats = Normalize({.mean = {0.4, 0.5, 0.6}, .std = {0.2, 0.25, 0.3}})
                                     .apply(ToTensor().apply(changed.unsqueeze(0)));
    EXPECT_TRUE(batch["features"].narrow(0, i, 1).equal(floats)) << i;
  }
}

TEST(ImageFolder, MemoryOfAnEarlierBatchIsUsedAgain) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto images = image_folder({.root = folder.path(), .transform = window_and_floats()});
  const Batch first = images->gather_in_epoch(kAll, {}, {});
  const void* const memory = first["features"].data_ptr();
  const Batch second = images->gather_in_epoch(kAll, {}, first);
  EXPECT_EQ(second["features"].data_ptr(), memory);
}

TEST(ImageFolder, DefaultsToFloatsAndNamesImagesOfOtherSizes) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto images = image_folder({.root = folder.path()});
  EXPECT_FALSE(images->is_random());
  const Batch one = images->sample(1);
  EXPECT_TRUE(one["features"].equal(ToTensor().apply(testing::waves(40, 60).unsqueeze(0))[0]));
  EXPECT_THAT(error_text<DataError>([&] { images->gather(kAll, {}); }),
              AllOf(HasSubstr("a.jpg is Byte [50, 40, 3]"), HasSubstr("b.png is Byte [40, 60, 3]"),
                    HasSubstr("Resize or RandomResizedCrop")));
}

TEST(ImageFolder, OptionsOfTheDecoderAndTheTargets) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const auto grey = image_folder(
      {.root = folder.path(),
       .target_transform = Lambda([](const torch::Tensor& targets) { return targets * 10; }),
       .channels = Channels::kGrey});
  EXPECT_EQ(grey->sample(1)["features"].sizes(), (torch::IntArrayRef{1, 40, 60}));
  EXPECT_EQ(grey->sample(5)["targets"].item<std::int64_t>(), 10);
  const auto limited = image_folder({.root = folder.path(), .most_pixels = 1000});
  EXPECT_THAT(error_text<DataError>([&] { limited->sample(1); }),
              AllOf(HasSubstr("b.png: the image has 40 x 60"), HasSubstr("most_pixels")));
  const auto floats =
      image_folder({.root = folder.path(), .transform = Compose({RandomWindow()}), .floats = true});
  EXPECT_EQ(floats->gather(kAll, {})["features"].sizes(), (torch::IntArrayRef{6, 3, 16, 16}));
  const auto plain = image_folder({.root = folder.path(), .floats = true});
  EXPECT_EQ(plain->sample(1)["features"].sizes(), (torch::IntArrayRef{3, 40, 60}));
  EXPECT_THAT(error_text<ConfigError>([] { image_folder({}); }), HasSubstr("root: expected"));
}

TEST(ImageFolder, ImagesOfATable) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  testing::write_bytes(folder / "list.csv", "path,label\ndogs/b.jpeg,flat\ncats/a.jpg,wavy\n");
  const auto images = image_folder({.transform = window_and_floats(), .csv = folder / "list.csv"});
  EXPECT_EQ(images->size(), 2);
  EXPECT_THAT(images->classes(), ElementsAre("flat", "wavy"));
  EXPECT_THAT(images->targets(), ElementsAre(0, 1));
  EXPECT_EQ(images->sample(0)["features"].sizes(), (torch::IntArrayRef{3, 16, 16}));
}

TEST(ImageFolder, ABrokenImageIsNamed) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const std::string jpeg = read_file(folder / "cats/a.jpg");
  testing::write_bytes(folder / "cats/a.jpg", jpeg.substr(0, jpeg.size() / 2));
  testing::write_bytes(folder / "dogs/c.png", "no image");
  const auto images = image_folder({.root = folder.path(), .transform = window_and_floats()});
  EXPECT_EQ(images->size(), 6);
  EXPECT_THAT(error_text<DataError>([&] { images->gather(kAll, {}); }),
              AllOf(HasSubstr("cats/a.jpg: "), HasSubstr("Premature end")));
  EXPECT_THAT(error_text<DataError>([&] { images->sample(5); }), HasSubstr("dogs/c.png: "));
  std::filesystem::remove(folder / "dogs/a.webp");
  EXPECT_THAT(error_text<DataError>([&] { images->sample(3); }),
              AllOf(HasSubstr("dogs/a.webp: "), HasSubstr("cannot open")));
}

TEST(ImageFolder, BrokenImagesAreSkippedAndCounted) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  const std::string jpeg = read_file(folder / "cats/a.jpg");
  testing::write_bytes(folder / "cats/a.jpg", jpeg.substr(0, jpeg.size() / 2));
  testing::write_bytes(folder / "dogs/b.jpeg", "no image");
  std::string warnings;
  const WarningHandler before =
      set_warning_handler([&](const std::string& text) { warnings += text; });
  const auto images = image_folder(
      {.root = folder.path(), .transform = window_and_floats(), .on_error = OnImageError::kSkip});
  set_warning_handler(before);
  EXPECT_EQ(images->size(), 4);
  EXPECT_THAT(images->targets(), ElementsAre(0, 0, 1, 1));
  ASSERT_EQ(images->skipped().size(), 2U);
  EXPECT_EQ(images->skipped()[0].path, folder / "cats/a.jpg");
  EXPECT_THAT(images->skipped()[1].reason, HasSubstr("no image"));
  EXPECT_THAT(images->describe(), HasSubstr("4 images of 2 classes in"));
  EXPECT_THAT(images->describe(), HasSubstr(", 2 skipped"));
  EXPECT_THAT(warnings, AllOf(HasSubstr("2 skipped"), HasSubstr("cats/a.jpg: ")));
  const std::vector<std::int64_t> all = {0, 1, 2, 3};
  EXPECT_EQ(images->gather(all, {})["features"].size(0), 4);

  for (const std::filesystem::path& path : images->paths()) {
    testing::write_bytes(path, "no image either");
  }
  EXPECT_THAT(error_text<DataError>(
                  [&] { image_folder({.root = folder.path(), .on_error = OnImageError::kSkip}); }),
              HasSubstr("none of 6 images can be read"));
}

// Keeps warnings from the console.
class WithoutWarnings {
 public:
  WithoutWarnings() : before_(set_warning_handler([](const std::string&) {})) {}
  ~WithoutWarnings() { set_warning_handler(before_); }

 private:
  WarningHandler before_;
};

TEST(ImageFolder, GreyAlphaAnd16BitsInOneFolder) {
  const TemporaryDirectory folder;
  const torch::Tensor rgb = testing::gradient(20, 30);
  const torch::Tensor grey = rgb.narrow(2, 0, 1).contiguous();
  testing::write_bytes(folder / "a/1.png", testing::png_file(torch::cat({rgb, grey}, 2)));
  testing::write_bytes(folder / "a/2.png", testing::png_file(grey));
  testing::write_bytes(folder / "a/3.png", testing::png_file(torch::cat({grey, grey}, 2)));
  const std::string rows("\x12\xff\xff\xff", 4);  // two values of 16 bits, the high byte first
  const torch::Tensor bytes = torch::tensor({0x12, 0xff}, torch::kUInt8);
  const torch::Tensor wide = torch::tensor({0x12ff / 65535.0F, 1.0F});
  testing::write_bytes(folder / "b/4.png",
                       testing::png_file(1, 2, rows, {.color = PNG_COLOR_TYPE_GRAY, .bits = 16}));
  const std::string swapped("\xff\x12\xff\xff", 4);
  testing::write_bytes(folder / "b/5.tif",
                       testing::tiff_file({.height = 1, .width = 2}, 1, swapped,
                                          {.bits = 16, .photometric = PHOTOMETRIC_MINISBLACK}));

  const auto images = image_folder({.root = folder.path()});
  const auto features = [](const std::shared_ptr<const ImageFolder>& from, std::int64_t index) {
    return from->sample(index)["features"];
  };
  const auto as_floats = [](const torch::Tensor& pixels) {
    return ToTensor().apply(pixels.unsqueeze(0))[0];
  };
  EXPECT_TRUE(features(images, 0).equal(as_floats(rgb)));
  EXPECT_TRUE(features(images, 1).equal(as_floats(grey.expand({20, 30, 3}))));
  EXPECT_TRUE(features(images, 2).equal(as_floats(grey.expand({20, 30, 3}))));
  const auto precise = image_folder({.root = folder.path(), .floats = true});
  for (const std::int64_t index : {3, 4}) {
    EXPECT_TRUE(features(images, index).equal(as_floats(bytes.view({1, 2, 1}).expand({1, 2, 3}))));
    EXPECT_TRUE(features(precise, index).allclose(wide.expand({3, 1, 2}))) << index;
  }
  const auto rgba = image_folder({.root = folder.path(), .channels = Channels::kRgba});
  EXPECT_TRUE(features(rgba, 0)[3].equal(as_floats(grey)[0])) << "alpha";
  EXPECT_TRUE(features(rgba, 3)[3].eq(1).all().item<bool>()) << "opaque";
}

TEST(ImageFolder, TurnsImagesUnlessTold) {
  const TemporaryDirectory folder;
  write_images(folder.path());
  constexpr std::int64_t kTurned = 4;  // dogs/b.jpeg, 48 x 30 as it is stored
  for (const TransformPtr& transform :
       std::vector<TransformPtr>{{}, Compose({Resize({.size = {30}}), ToTensor()})}) {
    const auto size = [&](bool orient) {
      const auto images =
          image_folder({.root = folder.path(), .transform = transform, .orient = orient});
      return images->sample(kTurned)["features"].sizes().vec();
    };
    EXPECT_THAT(size(true), ElementsAre(3, 30, 48));
    EXPECT_THAT(size(false), ElementsAre(3, 48, 30));
  }
}

TEST(ImageFolder, ADamagedFileIsNamedOrAnImage) {
  const TemporaryDirectory folder;
  testing::write_bytes(folder / "a/1.jpg", "");
  const auto images = image_folder({.root = folder.path(),
                                    .transform = Compose({Resize({.size = {8, 8}}), ToTensor()}),
                                    .most_pixels = 1 << 22});
  for (const bool progressive : {false, true}) {
    const std::string good =
        testing::jpeg_file(testing::waves(64, 48), {.progressive = progressive, .orientation = 6});
    EXPECT_GE(
        refused_if_damaged<DataError>(good, folder / "a/1.jpg",
                                      [&](const std::filesystem::path&) { images->sample(0); }),
        testing::cut_files());
  }
}

TEST(ImageFolder, APipeIsNoImage) {
  const TemporaryDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "pipe.jpg").c_str(), 0600), 0);
  testing::write_bytes(folder / "list.csv", "pipe.jpg,0\n.,0\n");
  const auto images = image_folder({.csv = folder / "list.csv"});
  for (const std::int64_t index : {0, 1}) {
    EXPECT_THAT(error_text<DataError>([&] { images->sample(index); }),
                HasSubstr("expected a regular file"));
  }
}

// The bytes behind the image make the file large.
TEST(ImageFolder, MemoryOfALargeFileIsGivenBack) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) GTEST_SKIP() << "sanitizers keep memory";
  const TemporaryDirectory folder;
  const std::string png = testing::png_file(testing::gradient(8, 8));
  testing::write_bytes(folder / "a/1.png", png);
  constexpr std::size_t kLarge = 64 << 20;
  testing::write_bytes(folder / "a/2.png", png + std::string(kLarge, 'x'));
  const auto images = image_folder({.root = folder.path()});
  images->sample(0);
  const std::uint64_t before = private_bytes();
  EXPECT_EQ(images->sample(1)["features"].size(1), 8);
  EXPECT_LT(private_bytes(), before + kLarge / 2);
}

// The image has 2^40 pixels, which are allowed here but do not fit into the memory. Fax packing has
// no limit, so that the header may be right.
TEST(ImageFolder, ALackOfMemoryIsNotSkipped) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) GTEST_SKIP() << "needs a limit of memory";
  const TemporaryDirectory folder;
  std::string tiff = testing::tiff_file(
      {.height = 5, .width = 8}, 1, std::string(5, '\0'),
      {.bits = 1, .photometric = PHOTOMETRIC_MINISBLACK, .compression = COMPRESSION_CCITTFAX4});
  for (const std::uint32_t tag : {TIFFTAG_IMAGEWIDTH, TIFFTAG_IMAGELENGTH, TIFFTAG_ROWSPERSTRIP}) {
    tiff = testing::with_tiff_tag(tiff, tag, 1 << 20);
  }
  testing::write_bytes(folder / "a/1.tif", tiff);
  testing::write_bytes(folder / "a/2.png", "no image");
  const MemoryLimit limit(std::uint64_t{1} << 36);
  const WithoutWarnings silence;
  const std::string error = error_text<Error>([&] {
    image_folder({.root = folder.path(),
                  .on_error = OnImageError::kSkip,
                  .most_pixels = std::int64_t{1} << 40});
  });
  EXPECT_THAT(error, AllOf(HasSubstr("a/1.tif: "), HasSubstr("memory")));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("none of 2 images")));
}

}  // namespace
}  // namespace lockstep::data
