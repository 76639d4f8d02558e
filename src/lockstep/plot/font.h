// A small bitmap font, so that pictures can carry text without a font library.
#pragma once

#include <string_view>

#include "lockstep/plot/image.h"

namespace lockstep::plot {

// A glyph is 5 x 9 pixels: 7 above the baseline, 2 below it.
inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphAscent = 7;
inline constexpr int kGlyphHeight = 9;

struct TextStyle {
  int x = 0;              // left edge of what is drawn
  int y = 0;              // top edge of what is drawn
  int scale = 1;          // pixels a font pixel
  bool vertical = false;  // turned to the left, read from bottom to top
  Color color = {};
};

// How far `text` reaches, in pixels. It is UTF-8; each code point takes the room of one glyph.
int text_width(std::string_view text, int scale);

// Draws `text`; a character that the font does not have (it has ASCII) is a small box.
void draw_text(Image& image, std::string_view text, const TextStyle& style);

}  // namespace lockstep::plot
