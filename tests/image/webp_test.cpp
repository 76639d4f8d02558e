#include <gmock/gmock.h>

#include "lockstep/image/decode.h"
#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

using testing::bytes_of;
using testing::webp_file;

TEST(Webp, WithoutLoss) {
  const torch::Tensor rgb = testing::gradient(17, 23);
  const torch::Tensor rgba = torch::cat({rgb, rgb.narrow(2, 0, 1)}, 2);
  EXPECT_TRUE(decode(bytes_of(webp_file(rgb))).equal(rgb));
  EXPECT_TRUE(decode(bytes_of(webp_file(rgba))).equal(rgb)) << "alpha is dropped";
  EXPECT_TRUE(decode(bytes_of(webp_file(rgba)), {.channels = Channels::kStored}).equal(rgba));
  EXPECT_TRUE(decode(bytes_of(webp_file(rgb)), {.channels = Channels::kStored}).equal(rgb));
  const torch::Tensor opaque = decode(bytes_of(webp_file(rgb)), {.channels = Channels::kRgba});
  EXPECT_TRUE(opaque.select(2, 3).eq(255).all().item<bool>());
}

TEST(Webp, WithLoss) {
  const torch::Tensor image = testing::gradient(40, 50);
  EXPECT_LT(testing::mean_difference(decode(bytes_of(webp_file(image, /*lossless=*/false))), image),
            4);
}

TEST(Webp, ExifOrientation) {
  const torch::Tensor image = testing::gradient(5, 8);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const torch::Tensor stored = testing::turned_back(image, orientation);
    const std::string file =
        testing::webp_with_exif(webp_file(stored), testing::exif(orientation),
                                {.height = stored.size(0), .width = stored.size(1)});
    EXPECT_TRUE(decode(bytes_of(file)).equal(image)) << orientation;
  }
}

TEST(Webp, DamagedFiles) {
  const torch::Tensor image = testing::waves(40, 30);
  for (const bool lossless : {false, true}) {
    const std::string file = webp_file(image, lossless);
    EXPECT_GE(testing::refused_images(file), testing::cut_files()) << lossless;
    const std::string turned =
        testing::webp_with_exif(file, testing::exif(6), {.height = 40, .width = 30});
    EXPECT_GE(testing::refused_images(turned), testing::cut_files()) << lossless;
  }
  const std::string file = webp_file(image, /*lossless=*/false);
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(file.substr(0, file.size() / 2))); }),
              ::testing::HasSubstr("WebP: "));
}

// A file without loss may be many thousand times smaller than its image, so that only the limit of
// pixels bounds the memory.
TEST(Webp, AHeaderThatIsTooLarge) {
  std::string file = webp_file(testing::gradient(8, 8));
  ASSERT_EQ(file.substr(12, 4), "VP8L");
  file.replace(21, 3, "\xff\xff\xff");  // 14 bits of the width and 10 of the height
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(file), {.most_pixels = 1 << 20}); }),
              ::testing::HasSubstr("most_pixels"));
}

}  // namespace
}  // namespace lockstep::data
