#include "lockstep/plot/font.h"

#include <string>

#include <gtest/gtest.h>

namespace lockstep::plot {
namespace {

constexpr Color kWhite = {255, 255, 255};

std::string render(std::string_view text, TextStyle style, ImageSize size) {
  Image image = make_image(size, {});
  style.color = kWhite;
  draw_text(image, text, style);
  std::string art;
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      art += image.rgb[(static_cast<std::size_t>(y) * size.width + x) * 3] != 0 ? '#' : '.';
    }
    art += '\n';
  }
  return art;
}

TEST(Font, DrawsLetters) {
  EXPECT_EQ(render("T1", {}, {.width = 11, .height = 9}),
            "#####...#..\n"
            "..#....##..\n"
            "..#.....#..\n"
            "..#.....#..\n"
            "..#.....#..\n"
            "..#.....#..\n"
            "..#....###.\n"
            "...........\n"
            "...........\n");
}

TEST(Font, VerticalTextIsTheSamePictureTurnedLeft) {
  const std::string text = "g7";
  const int length = text_width(text, 2), height = kGlyphHeight * 2;
  const std::string flat = render(text, {.scale = 2}, {.width = length, .height = height});
  const std::string turned =
      render(text, {.scale = 2, .vertical = true}, {.width = height, .height = length});
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < length; ++x) {
      EXPECT_EQ(flat[y * (length + 1) + x], turned[(length - 1 - x) * (height + 1) + y])
          << x << ", " << y;
    }
  }
}

TEST(Font, EveryPrintableCharacterHasAGlyphOfItsOwn) {
  std::string seen;
  for (char c = '!'; c <= '~'; ++c) {
    const std::string art = render(std::string(1, c), {}, {.width = 5, .height = 9});
    EXPECT_NE(art.find('#'), std::string::npos) << c;
    // Only 0 and O may look the same.
    if (c != 'O') {
      EXPECT_EQ(seen.find(art), std::string::npos) << c;
    }
    seen += art + "|";
  }
}

TEST(Font, AnUnknownCharacterIsOneBox) {
  EXPECT_EQ(text_width("ö", 1), text_width("o", 1));
  EXPECT_EQ(render("ö", {}, {.width = 11, .height = 1}), "#####......\n");
}

TEST(Font, WidthScales) {
  EXPECT_EQ(text_width("", 3), 0);
  EXPECT_EQ(text_width("ab", 1), 11);
  EXPECT_EQ(text_width("ab", 3), 33);
}

}  // namespace
}  // namespace lockstep::plot
