#include <gmock/gmock.h>
#include <zlib.h>

#include "lockstep/image/decode.h"
#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

using testing::bytes_of;
using testing::gradient;
using ::testing::HasSubstr;
using testing::png_file;

const DecodeOptions kAsStored = {.channels = Channels::kStored};

TEST(Png, EveryNumberOfChannels) {
  const torch::Tensor four = torch::cat({gradient(9, 13), gradient(9, 13).narrow(2, 1, 1)}, 2);
  for (const std::int64_t channels : {1, 2, 3, 4}) {
    const torch::Tensor image = four.narrow(2, 0, channels).contiguous();
    EXPECT_TRUE(decode(bytes_of(png_file(image)), kAsStored).equal(image)) << channels;
    EXPECT_TRUE(decode(bytes_of(png_file(image, {.interlaced = true})), kAsStored).equal(image));
  }
  EXPECT_TRUE(decode(bytes_of(png_file(four))).equal(gradient(9, 13))) << "alpha is dropped";
  EXPECT_TRUE(decode(bytes_of(png_file(four)), {.channels = Channels::kRgba}).equal(four));
  const torch::Tensor grey = four.narrow(2, 0, 1).contiguous();
  EXPECT_TRUE(decode(bytes_of(png_file(grey))).equal(grey.expand({9, 13, 3})));
}

TEST(Png, Palette) {
  const std::string file = png_file(1, 4, std::string("\x1b", 1),  // 0, 1, 2, 3 in two bits each
                                    {.color = PNG_COLOR_TYPE_PALETTE,
                                     .bits = 2,
                                     .palette = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}},
                                     .transparency = std::string("\x80\xff", 2)});
  const torch::Tensor rgb = torch::arange(1, 13, torch::kUInt8).view({1, 4, 3});
  EXPECT_TRUE(decode(bytes_of(file)).equal(rgb));
  const torch::Tensor rgba = decode(bytes_of(file), kAsStored);
  ASSERT_EQ(rgba.size(2), 4);
  EXPECT_TRUE(rgba.narrow(2, 0, 3).equal(rgb));
  EXPECT_TRUE(
      rgba.select(2, 3).flatten().equal(torch::tensor({128, 255, 255, 255}, torch::kUInt8)));
}

TEST(Png, FewBitsAreScaledToBytes) {
  const std::string file = png_file(1, 8, "\xa1", {.color = PNG_COLOR_TYPE_GRAY, .bits = 1});
  EXPECT_TRUE(decode(bytes_of(file), kAsStored)
                  .flatten()
                  .equal(torch::tensor({255, 0, 255, 0, 0, 0, 0, 255}, torch::kUInt8)));
}

TEST(Png, SixteenBitsAsBytesOrFloats) {
  const std::string file = png_file(1, 2, std::string("\x12\xff\xff\xff", 4),
                                    {.color = PNG_COLOR_TYPE_GRAY, .bits = 16});
  EXPECT_TRUE(decode(bytes_of(file), kAsStored)
                  .flatten()
                  .equal(torch::tensor({0x12, 0xff}, torch::kUInt8)));
  const torch::Tensor floats =
      decode(bytes_of(file), {.channels = Channels::kStored, .floats = true});
  EXPECT_EQ(floats.sizes(), (torch::IntArrayRef{1, 1, 2}));
  EXPECT_TRUE(floats.flatten().allclose(torch::tensor({0x12ff / 65535.0F, 1.0F})));
  // Other images get the same layout and range.
  const torch::Tensor bytes = gradient(3, 5);
  EXPECT_TRUE(decode(bytes_of(png_file(bytes)), {.floats = true})
                  .equal(bytes.permute({2, 0, 1}).to(torch::kFloat32) / 255));
}

TEST(Png, ExifOrientation) {
  const torch::Tensor image = gradient(5, 8);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const torch::Tensor stored = testing::turned_back(image, orientation);
    const std::string file = png_file(stored, {.exif = testing::exif(orientation)});
    EXPECT_TRUE(decode(bytes_of(file)).equal(image)) << orientation;
    EXPECT_TRUE(decode(bytes_of(file), {.orient = false}).equal(stored)) << orientation;
  }
}

// Every change is found by a checksum.
TEST(Png, DamagedFiles) {
  const int most = damaged_files() / 2;
  const std::string file = png_file(gradient(40, 30));
  EXPECT_GE(testing::refused_images(file), most);
  EXPECT_GE(testing::refused_images(png_file(gradient(40, 30), {.interlaced = true})), most);
  std::string rows;
  for (int i = 0; i < 24 * 20 * 2; ++i) rows += static_cast<char>(7 * i);
  const std::string wide =
      png_file(24, 20, rows, {.color = PNG_COLOR_TYPE_GRAY, .bits = 16, .exif = testing::exif(6)});
  EXPECT_GE(testing::refused_images(wide), most);
  EXPECT_GE(testing::refused_images(wide, {.channels = Channels::kGrey, .floats = true}), most);
  const std::string palette = png_file(24, 40, rows.substr(0, 24 * 10),
                                       {.color = PNG_COLOR_TYPE_PALETTE,
                                        .bits = 2,
                                        .palette = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {0, 1, 2}},
                                        .transparency = std::string("\x80\xff", 2)});
  EXPECT_GE(testing::refused_images(palette), most);
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(file.substr(0, file.size() / 2))); }),
              HasSubstr("PNG: the file ends too early"));
}

// Replaces the sizes in the header, and its checksum.
std::string with_png_size(std::string file, ImageSize size) {
  const auto put = [&file](std::size_t at, std::uint64_t number) {
    for (std::size_t i = 0; i < 4; ++i) file[at + i] = static_cast<char>(number >> (24 - 8 * i));
  };
  constexpr std::size_t kType = 12, kWidth = 16, kHeight = 20, kChecksum = 29;
  put(kWidth, static_cast<std::uint64_t>(size.width));
  put(kHeight, static_cast<std::uint64_t>(size.height));
  put(kChecksum, ::crc32(0, reinterpret_cast<const Bytef*>(file.data()) + kType,
                         static_cast<uInt>(kChecksum - kType)));
  return file;
}

TEST(Png, AHeaderThatIsTooLargeForTheFile) {
  for (const bool interlaced : {false, true}) {
    const std::string file = png_file(gradient(40, 30), {.interlaced = interlaced});
    EXPECT_TRUE(decode(bytes_of(with_png_size(file, {40, 30}))).equal(gradient(40, 30)));
    const std::string large = with_png_size(file, {10'000, 10'000});
    EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(large)); }),
                HasSubstr("does not fit into"));
    const std::string huge = with_png_size(file, {900'000, 900'000});
    EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(huge)); }), HasSubstr("most_pixels"));
    EXPECT_THROW(decode(bytes_of(with_png_size(file, {0x7fffffff, 0x7fffffff}))), DataError);
  }
}

}  // namespace
}  // namespace lockstep::data
