#include <cmath>

#include <gmock/gmock.h>

#include "lockstep/image/decode.h"
#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

using testing::bytes_of;
using testing::gradient;
using ::testing::HasSubstr;
using testing::jpeg_file;
using testing::mean_difference;
using testing::waves;

TEST(Jpeg, ColorGreyAndProgressive) {
  const torch::Tensor image = gradient(45, 70);
  for (const bool progressive : {false, true}) {
    const std::string file = jpeg_file(image, {.progressive = progressive});
    EXPECT_LT(mean_difference(decode(bytes_of(file)), image), 2);
  }
  const torch::Tensor grey = image.narrow(2, 0, 1).contiguous();
  const std::string file = jpeg_file(grey);
  const torch::Tensor stored = decode(bytes_of(file), {.channels = Channels::kStored});
  EXPECT_LT(mean_difference(stored, grey), 2);
  EXPECT_TRUE(decode(bytes_of(file)).equal(stored.expand({45, 70, 3})));
  EXPECT_TRUE(decode(bytes_of(file), {.channels = Channels::kRgba})
                  .select(2, 3)
                  .eq(255)
                  .all()
                  .item<bool>());
}

TEST(Jpeg, GreyOfAColorImage) {
  const torch::Tensor image = gradient(45, 70);
  const torch::Tensor weights = torch::tensor({0.299, 0.587, 0.114});
  const torch::Tensor grey =
      decode(bytes_of(jpeg_file(image)), {.channels = Channels::kGrey}).squeeze(2);
  EXPECT_LT(mean_difference(grey, (image.to(torch::kFloat64) * weights).sum(2)), 2);
}

TEST(Jpeg, Cmyk) {
  // No black ink: what is stored inverted is RGB.
  const torch::Tensor rgb = gradient(32, 32);
  const torch::Tensor inverted = torch::cat({rgb, torch::full({32, 32, 1}, 255, torch::kUInt8)}, 2);
  const std::string file = jpeg_file(inverted, {.quality = 95, .colors = JCS_CMYK});
  EXPECT_LT(mean_difference(decode(bytes_of(file)), rgb), 2);
  EXPECT_EQ(decode(bytes_of(file), {.channels = Channels::kStored}).size(2), 3);
}

TEST(Jpeg, ExifOrientation) {
  const torch::Tensor image = gradient(40, 64);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string file =
        jpeg_file(testing::turned_back(image, orientation), {.orientation = orientation});
    EXPECT_LT(mean_difference(decode(bytes_of(file)), image), 2) << orientation;
    const torch::Tensor stored = decode(bytes_of(file), {.orient = false});
    EXPECT_LT(mean_difference(stored, testing::turned_back(image, orientation)), 2) << orientation;
  }
}

// A whole image in its own size, from a part that is decoded at full scale.
TEST(Jpeg, AWindowAtFullScaleHasTheSameBits) {
  const torch::Tensor image = waves(150, 230);
  for (const bool progressive : {false, true}) {
    for (const int orientation : {1, 2, 3, 4, 5, 6, 7, 8}) {
      const std::string file = jpeg_file(testing::turned_back(image, orientation),
                                         {.progressive = progressive, .orientation = orientation});
      for (const Window& window :
           {Window{.top = 0, .left = 0, .height = 150, .width = 230, .size = {100, 160}},
            Window{.top = 41, .left = 67, .height = 50, .width = 90, .size = {32, 64}},
            Window{.top = 149, .left = 229, .height = 1, .width = 1, .size = {4, 4}},
            Window{.top = 17, .left = 100, .height = 60, .width = 60, .size = {60, 60}},
            Window{.top = 90.5, .left = 3.25, .height = 33, .width = 100.5, .size = {40, 90}}}) {
        const auto request = [&](const ImageSize& size) {
          EXPECT_EQ(size, (ImageSize{150, 230}));
          return window;
        };
        const torch::Tensor part = decode(bytes_of(file), {}, request);
        EXPECT_TRUE(part.equal(decode(bytes_of(file), {.exact = true}, request)))
            << "orientation " << orientation << ", progressive " << progressive << ", top "
            << window.top;
      }
    }
  }
}

// At a lower scale libjpeg computes the means of pixels. The limit is far above the differences
// that come from it, and far below those of a window that is moved by a pixel.
TEST(Jpeg, AWindowAtALowerScaleDiffersLittle) {
  const torch::Tensor image = waves(300, 420);
  for (const int orientation : {1, 3, 6, 8}) {
    const std::string file =
        jpeg_file(testing::turned_back(image, orientation), {.orientation = orientation});
    for (const Window& window :
         {Window{.top = 0, .left = 0, .height = 300, .width = 420, .size = {150, 210}},
          Window{.top = 0, .left = 0, .height = 300, .width = 420, .size = {37, 52}},
          Window{.top = 101, .left = 33, .height = 150, .width = 333, .size = {64, 128}},
          Window{.top = 5, .left = 205, .height = 280, .width = 200, .size = {56, 45}}}) {
      const auto request = [&](const ImageSize&) { return window; };
      const torch::Tensor part = decode(bytes_of(file), {}, request);
      const torch::Tensor exact = decode(bytes_of(file), {.exact = true}, request);
      EXPECT_EQ(part.sizes(), exact.sizes());
      EXPECT_LT(mean_difference(part, exact), 2.5) << orientation << ", top " << window.top;
    }
  }
}

TEST(Jpeg, ATruncatedFileIsAnErrorNotAGreyImage) {
  const std::string file = jpeg_file(waves(128, 128));
  const auto window = [](const ImageSize&) {
    return Window{.top = 0, .left = 0, .height = 8, .width = 8, .size = {8, 8}};
  };
  for (const std::size_t missing : {2, 3, 100, 1000}) {
    const std::string cut = file.substr(0, file.size() - missing);
    EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(cut)); }),
                HasSubstr("the file ends too early"));
    EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(cut), {}, window); }),
                HasSubstr("the file ends too early"))
        << "also if the missing rows are not needed";
  }
  // Rows are missing, but the end of the image is there.
  const std::string gap = file.substr(0, file.size() - 1000) + "\xff\xd9";
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(gap)); }), HasSubstr("JPEG: "));
}

TEST(Jpeg, DamagedFiles) {
  for (const bool progressive : {false, true}) {
    for (const int orientation : {0, 6}) {
      const std::string file =
          jpeg_file(waves(64, 48), {.progressive = progressive, .orientation = orientation});
      EXPECT_GE(testing::refused_images(file), testing::cut_files())
          << "progressive " << progressive << ", orientation " << orientation;
    }
  }
}

// The window is scaled and turned with the image, but the error has the numbers of the request.
TEST(Jpeg, AWindowOutsideOfTheImageIsReportedAsItWasGiven) {
  const torch::Tensor image = waves(64, 96);
  for (const int orientation : {1, 6}) {
    const std::string file =
        jpeg_file(testing::turned_back(image, orientation), {.orientation = orientation});
    const auto error = [&](const Window& window) {
      return error_text<DataError>(
          [&] { decode(bytes_of(file), {}, [&](const ImageSize&) { return window; }); });
    };
    EXPECT_THAT(
        error({.top = 8, .left = 50, .height = 40, .width = 48, .size = {5, 6}}),
        HasSubstr("inside the image of 64 x 96 (height x width), got 40 x 48 from (8, 50) on"));
    EXPECT_THAT(error({.top = -2, .height = 40, .width = 40, .size = {40, 40}}),
                HasSubstr("from (-2, 0) on"));
    const double nan = std::nan("");
    EXPECT_THAT(error({.top = nan, .height = 8, .width = 8, .size = {8, 8}}),
                HasSubstr("(nan, 0)"));
    EXPECT_THAT(error({.height = 64, .width = 0, .size = {8, 8}}), HasSubstr("got 64 x 0"));
    EXPECT_EQ(error({.height = 64, .width = 96, .size = {8, 12}}), "");
  }
}

// Other formats and `exact` resize floats. The difference is the rounding to bytes.
TEST(Jpeg, AWindowOfFloatsIsResizedInBytes) {
  const std::string file = jpeg_file(waves(64, 96));
  const auto request = [](const ImageSize&) {
    return Window{.top = 3, .left = 5, .height = 50, .width = 60, .size = {40, 48}};
  };
  const torch::Tensor bytes = decode(bytes_of(file), {}, request);
  const torch::Tensor floats = decode(bytes_of(file), {.floats = true}, request);
  EXPECT_TRUE(floats.equal(bytes.permute({2, 0, 1}).to(torch::kFloat32) / 255));
  const torch::Tensor exact = decode(bytes_of(file), {.floats = true, .exact = true}, request);
  // Bytes are rounded twice, after the rows and after the columns.
  EXPECT_LT((floats - exact).abs().max().item<double>(), 1.5 / 255);
}

TEST(Jpeg, TooManyPassesOverTheImage) {
  const std::string file = jpeg_file(waves(32, 32), {.scan_per_component = true});
  const std::size_t last_scan = file.rfind("\xff\xda");
  const std::string scan = file.substr(last_scan, file.size() - last_scan - 2);
  const auto with_scans = [&](int more) {
    std::string text = file.substr(0, file.size() - 2);
    for (int i = 0; i < more; ++i) text += scan;
    return text + "\xff\xd9";
  };
  EXPECT_TRUE(torch::equal(decode(bytes_of(with_scans(10))), decode(bytes_of(file))));
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(with_scans(600))); }),
              HasSubstr("more than 500 scans"));
}

TEST(Jpeg, AHeaderThatIsTooLargeForTheFile) {
  std::string file = jpeg_file(gradient(8, 8));
  const std::size_t frame = file.find("\xff\xc0");
  file.replace(frame + 5, 4, std::string("\x27\x10\x27\x10", 4));  // 10,000 x 10,000
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(file)); }),
              HasSubstr("does not fit into"));
}

}  // namespace
}  // namespace lockstep::data
