#include "lockstep/image/image_folder.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/warn.h"
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

}  // namespace
}  // namespace lockstep::data
