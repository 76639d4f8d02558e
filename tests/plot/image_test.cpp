#include "lockstep/plot/image.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

TEST(Image, PngHasSignatureSizeAndEnd) {
  Image image = make_image({.width = 7, .height = 3}, {10, 20, 30});
  const std::string png = encode_png(image);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png.substr(12, 4), "IHDR");
  EXPECT_EQ(big_endian(png, 16), 7u);
  EXPECT_EQ(big_endian(png, 20), 3u);
  EXPECT_EQ(png[24], 8);  // bits
  EXPECT_EQ(png[25], 2);  // RGB
  EXPECT_EQ(png.substr(png.size() - 8, 4), "IEND");
}

// The pixels, as a reader of PNG files takes them out.
TEST(Image, PngHasThePixelsAndRightChecksums) {
  Image image = make_image({.width = 5, .height = 4}, {1, 2, 3});
  set_pixel(image, 4, 3, {250, 251, 252});
  const std::string png = encode_png(image);
  std::string rows(4 * (1 + 5 * 3), '\0');
  for (std::size_t at = 8; at < png.size();) {
    const std::uint32_t size = big_endian(png, at);
    const std::string name = png.substr(at + 4, 4);
    const auto* const checked = reinterpret_cast<const Bytef*>(png.data() + at + 4);
    EXPECT_EQ(big_endian(png, at + 8 + size), ::crc32(0, checked, size + 4)) << name;
    if (name == "IDAT") {
      uLongf length = rows.size();
      ASSERT_EQ(::uncompress(reinterpret_cast<Bytef*>(rows.data()), &length, checked + 4, size),
                Z_OK);
      EXPECT_EQ(length, rows.size());
    }
    at += 12 + size;
  }
  for (int y = 0; y < 4; ++y) {
    EXPECT_EQ(rows[static_cast<std::size_t>(y) * 16], 0) << "the row's filter";
    const std::string pixels = rows.substr(static_cast<std::size_t>(y) * 16 + 1, 15);
    EXPECT_EQ(pixels, std::string(image.rgb.begin() + y * 15, image.rgb.begin() + y * 15 + 15));
  }
}

TEST(Image, SizeThatDoesNotMatchThePixelsIsRefused) {
  EXPECT_THROW(encode_png({.width = 2, .height = 2, .rgb = {1, 2, 3}}), Error);
  EXPECT_THROW(encode_png({}), Error);
  EXPECT_THROW(make_image({.width = 0, .height = 5}, {}), Error);
}

TEST(Image, DrawingOutsideIsClipped) {
  Image image = make_image({.width = 2, .height = 2}, {0, 0, 0});
  fill(image, {.x = 1, .y = -5, .width = 100, .height = 6}, {255, 0, 0});
  const std::vector<std::uint8_t> expected = {0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(image.rgb, expected);
}

}  // namespace
}  // namespace lockstep
