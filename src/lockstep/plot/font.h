// A small bitmap font, so that images can have text without a font library.
#pragma once

#include <string_view>

#include "lockstep/plot/image.h"

namespace lockstep::plot {

// A glyph is 5 x 9 pixels: 7 above the baseline, 2 below it.
inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphAscent = 7;
inline constexpr int kGlyphHeight = 9;

struct TextStyle {
  int x = 0;              // left edge of the text
  int y = 0;              // top edge of the text
  int scale = 1;          // width and height of a font pixel in image pixels
  bool vertical = false;  // turned to the left, to be read from bottom to top
  Color color = {};
};

// The width of `text` in pixels. The text is UTF-8, and each code point has the width of one glyph.
int text_width(std::string_view text, int scale);

// Draws `text`. The font has only ASCII. Any other character is drawn as a small box.
void draw_text(Image& image, std::string_view text, const TextStyle& style);

}  // namespace lockstep::plot
