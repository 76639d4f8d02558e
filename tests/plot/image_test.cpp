#include "lockstep/plot/image.h"

#include <gtest/gtest.h>

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
