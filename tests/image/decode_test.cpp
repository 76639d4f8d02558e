#include "lockstep/image/decode.h"

#include <gmock/gmock.h>

#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using testing::gradient;
using ::testing::HasSubstr;
using testing::png_file;

TEST(Decode, TheFormatIsFoundInTheBytes) {
  const torch::Tensor image = gradient(20, 30);
  for (const std::string& file : {png_file(image), testing::webp_file(image),
                                  testing::tiff_file(image), testing::jpeg_file(image)}) {
    EXPECT_LT(testing::mean_difference(decode(bytes_of(file)), image), 2);
    check_image(bytes_of(file));
  }
  EXPECT_THAT(error_text<DataError>([] { decode(bytes_of("GIF89a\x01\x02")); }),
              AllOf(HasSubstr("JPEG, PNG, WebP or TIFF"), HasSubstr("GIF89a")));
  EXPECT_THAT(error_text<DataError>([] { decode({}); }), HasSubstr("empty"));
  EXPECT_THROW(check_image(bytes_of("BM")), DataError);
}

TEST(Decode, PixelsAreCountedBeforeTheyAreDecoded) {
  const torch::Tensor image = gradient(20, 30);
  for (const std::string& file : {png_file(image), testing::webp_file(image),
                                  testing::tiff_file(image), testing::jpeg_file(image)}) {
    EXPECT_EQ(decode(bytes_of(file), {.most_pixels = 600}).size(0), 20);
    EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(file), {.most_pixels = 599}); }),
                AllOf(HasSubstr("20 x 30"), HasSubstr("599"), HasSubstr("most_pixels")));
  }
}

TEST(Decode, AWindowOfEveryFormatIsResampled) {
  const torch::Tensor image = gradient(40, 60);
  const Window window{.top = 3, .left = 10, .height = 30, .width = 40, .size = {12, 16}};
  const auto request = [&](const ImageSize& size) {
    EXPECT_EQ(size, (ImageSize{40, 60}));
    return window;
  };
  for (const std::string& file :
       {png_file(image), testing::webp_file(image), testing::tiff_file(image)}) {
    EXPECT_TRUE(decode(bytes_of(file), {}, request).equal(resample(image, window)));
    const torch::Tensor floats = decode(bytes_of(file), {.floats = true}, request);
    EXPECT_EQ(floats.sizes(), (torch::IntArrayRef{3, 12, 16}));
  }
  const std::string jpeg = testing::jpeg_file(image);
  EXPECT_EQ(decode(bytes_of(jpeg), {.floats = true}, request).sizes(),
            (torch::IntArrayRef{3, 12, 16}));
  EXPECT_EQ(decode(bytes_of(jpeg), {.channels = Channels::kGrey}, request).sizes(),
            (torch::IntArrayRef{12, 16, 1}));
}

}  // namespace
}  // namespace lockstep::data
