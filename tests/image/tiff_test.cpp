#include <gmock/gmock.h>

#include "lockstep/image/decode.h"
#include "tests/data/error_text.h"
#include "tests/image/encoders.h"

namespace lockstep::data {
namespace {

using testing::bytes_of;
using testing::gradient;
using testing::tiff_file;
using testing::TiffFile;

const DecodeOptions kChannelsOfFile = {.channels = Channels::kStored};

TEST(Tiff, StripsTilesAndPlanes) {
  const torch::Tensor image = gradient(21, 37);
  for (const auto compression :
       {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS}) {
    TiffFile file{.compression = static_cast<std::uint16_t>(compression)};
    EXPECT_TRUE(decode(bytes_of(tiff_file(image, file))).equal(image)) << compression;
    file.tile = 16;
    EXPECT_TRUE(decode(bytes_of(tiff_file(image, file))).equal(image)) << compression;
    file.tile = 0;
    file.planar = PLANARCONFIG_SEPARATE;
    EXPECT_TRUE(decode(bytes_of(tiff_file(image, file))).equal(image)) << compression;
  }
  EXPECT_TRUE(decode(bytes_of(tiff_file(image, {.mode = "wb"}))).equal(image)) << "big endian";
}

TEST(Tiff, GreyAndAlpha) {
  const torch::Tensor grey = gradient(6, 9).narrow(2, 0, 1).contiguous();
  const auto stored = [&](const torch::Tensor& image, std::uint16_t photometric) {
    return decode(bytes_of(tiff_file(image, {.photometric = photometric})), kChannelsOfFile);
  };
  EXPECT_TRUE(stored(grey, PHOTOMETRIC_MINISBLACK).equal(grey));
  EXPECT_TRUE(stored(grey, PHOTOMETRIC_MINISWHITE).equal(255 - grey));
  const torch::Tensor rgba = torch::cat({gradient(6, 9), grey}, 2);
  EXPECT_TRUE(stored(rgba, PHOTOMETRIC_RGB).equal(rgba));
  EXPECT_TRUE(decode(bytes_of(tiff_file(rgba))).equal(gradient(6, 9)))
      << "colours are not multiplied by alpha";
}

TEST(Tiff, SixteenBitsAsBytesOrFloats) {
  const std::string rows("\x00\x01\xff\xff\x34\x12", 6);  // 256, 65535, 0x1234
  for (const std::uint32_t tile : {0, 16}) {
    const std::string file =
        tiff_file({.height = 1, .width = 3}, 1, rows,
                  {.bits = 16, .photometric = PHOTOMETRIC_MINISBLACK, .tile = tile});
    EXPECT_TRUE(decode(bytes_of(file), kChannelsOfFile)
                    .flatten()
                    .equal(torch::tensor({1, 255, 0x12}, torch::kUInt8)));
    EXPECT_TRUE(decode(bytes_of(file), {.channels = Channels::kGrey, .floats = true})
                    .flatten()
                    .allclose(torch::tensor({256 / 65535.0F, 1.0F, 0x1234 / 65535.0F})));
  }
}

TEST(Tiff, PaletteAndOneBit) {
  std::vector<std::uint16_t> palette(3 * 256, 0);
  palette[1] = 0xffff;            // red of the colour 1
  palette[256 + 2] = 0x8080;      // green of the colour 2
  palette[2 * 256 + 3] = 0x4040;  // blue of the colour 3
  const std::string colors = tiff_file({.height = 1, .width = 4}, 1, std::string("\0\1\2\3", 4),
                                       {.photometric = PHOTOMETRIC_PALETTE, .palette = palette});
  EXPECT_TRUE(decode(bytes_of(colors))
                  .flatten()
                  .equal(torch::tensor({0, 0, 0, 255, 0, 0, 0, 128, 0, 0, 0, 64}, torch::kUInt8)));
  const std::string bits = tiff_file(
      {.height = 1, .width = 8}, 1, "\xa1",
      {.bits = 1, .photometric = PHOTOMETRIC_MINISBLACK, .compression = COMPRESSION_NONE});
  EXPECT_TRUE(decode(bytes_of(bits), kChannelsOfFile)
                  .flatten()
                  .equal(torch::tensor({255, 0, 255, 0, 0, 0, 0, 255}, torch::kUInt8)));
}

TEST(Tiff, OrientationTag) {
  const torch::Tensor image = gradient(5, 8);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const torch::Tensor stored = testing::turned_back(image, orientation);
    const std::string file =
        tiff_file(stored, {.orientation = static_cast<std::uint16_t>(orientation)});
    EXPECT_TRUE(decode(bytes_of(file)).equal(image)) << orientation;
  }
}

TEST(Tiff, OtherNumbersAreRefused) {
  const std::string file = tiff_file({.height = 1, .width = 1}, 1, std::string(4, '\0'),
                                     {.bits = 32, .photometric = PHOTOMETRIC_MINISBLACK});
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(file)); }),
              ::testing::HasSubstr("TIFF: "));
}

std::string tiff_with_palette(ImageSize size, std::uint32_t tile) {
  std::vector<std::uint16_t> palette(3 * 256);
  for (std::size_t i = 0; i < palette.size(); ++i) palette[i] = static_cast<std::uint16_t>(80 * i);
  std::string rows;
  for (std::int64_t i = 0; i < size.height * size.width; ++i) rows += static_cast<char>(5 * i);
  return tiff_file(size, 1, rows,
                   {.photometric = PHOTOMETRIC_PALETTE, .tile = tile, .palette = palette});
}

TEST(Tiff, DamagedFiles) {
  const torch::Tensor image = testing::waves(40, 30);
  const auto expect_refused = [](const std::string& file, DecodeOptions options) {
    EXPECT_GE(testing::refused_images(file, options), testing::cut_files());
  };
  for (const auto compression :
       {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS}) {
    for (const std::uint32_t tile : {0, 16}) {
      SCOPED_TRACE(::testing::Message() << "compression " << compression << ", tile " << tile);
      expect_refused(tiff_file(image, {.compression = static_cast<std::uint16_t>(compression),
                                       .orientation = ORIENTATION_RIGHTTOP,
                                       .tile = tile}),
                     kChannelsOfFile);
    }
  }
  expect_refused(tiff_file(image, {.planar = PLANARCONFIG_SEPARATE}), kChannelsOfFile);
  const std::string wide(24 * 20 * 2, 'x');
  for (const std::uint32_t tile : {0, 16}) {
    SCOPED_TRACE(::testing::Message() << "tile " << tile);
    expect_refused(tiff_with_palette({.height = 40, .width = 30}, tile), kChannelsOfFile);
    expect_refused(tiff_file({.height = 24, .width = 20}, 1, wide,
                             {.bits = 16, .photometric = PHOTOMETRIC_MINISBLACK, .tile = tile}),
                   {.channels = Channels::kGrey, .floats = true});
  }
  const std::string file = tiff_file(image);
  EXPECT_THAT(error_text<DataError>([&] { decode(bytes_of(file.substr(0, file.size() / 2))); }),
              ::testing::HasSubstr("TIFF: "));
}

// Of pixels that are read as they are, and of those that libtiff converts.
TEST(Tiff, HugeSizesAreRefusedBeforeMemoryIsTaken) {
  const MemoryLimit limit(std::uint64_t{64} << 20);
  for (const std::string& file : {tiff_file(gradient(10, 10), {.tile = 16}),
                                  tiff_with_palette({.height = 10, .width = 10}, /*tile=*/16)}) {
    const auto error = [&](std::uint32_t tag, std::uint32_t value) {
      const std::string changed = testing::with_tiff_tag(file, tag, value);
      return error_text<DataError>([&] { decode(bytes_of(changed)); });
    };
    EXPECT_EQ(error(TIFFTAG_TILEWIDTH, 16), "");
    EXPECT_THAT(error(TIFFTAG_TILEWIDTH, 1 << 24),
                ::testing::HasSubstr("tiles of 16 x 16777216 (height x width)"));
    EXPECT_THAT(error(TIFFTAG_TILELENGTH, 1 << 24), ::testing::HasSubstr("TIFF: "));
    EXPECT_THAT(error(TIFFTAG_IMAGEWIDTH, 1 << 30), ::testing::Not(::testing::IsEmpty()));
  }
}

}  // namespace
}  // namespace lockstep::data
