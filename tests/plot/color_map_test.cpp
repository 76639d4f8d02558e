#include "lockstep/plot/color_map.h"

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep::plot {
namespace {

TEST(ColorMap, HasItsEndsAndItsMiddle) {
  EXPECT_EQ(color_of(ColorMap::kSequential, 0), (Color{68, 1, 84}));
  EXPECT_EQ(color_of(ColorMap::kSequential, 1), (Color{253, 231, 37}));
  EXPECT_EQ(color_of(ColorMap::kSequential, 7), (Color{253, 231, 37}));
  EXPECT_EQ(color_of(ColorMap::kDiverging, 0.5), (Color{247, 247, 247}));
  EXPECT_EQ(color_of(ColorMap::kDiverging, NAN), (Color{160, 160, 160}));
}

TEST(ColorMap, MoreIsLighter) {
  int before = -1;
  for (double part = 0; part <= 1; part += 0.05) {
    const Color color = color_of(ColorMap::kSequential, part);
    const int lightness = 2 * color.red + 5 * color.green + color.blue;
    EXPECT_GT(lightness, before);
    before = lightness;
  }
}

TEST(ColorMap, ARasterIsAPicture) {
  const Image image = to_image({.width = 2, .height = 1, .values = {-1, 3}, .low = -1, .high = 3});
  EXPECT_EQ(image.rgb, (std::vector<std::uint8_t>{68, 1, 84, 253, 231, 37}));
}

}  // namespace
}  // namespace lockstep::plot
