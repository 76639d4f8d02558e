#include "lockstep/plot/confusion_image.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/plot/font.h"

namespace lockstep::plot {
namespace {

constexpr int kTextlessFrom = 40;         // classes; from here on there is no text
constexpr int kMargin = 20;               // around everything
constexpr int kGap = 10;                  // between a title, the labels and the cells
constexpr int kScaleWidth = 16;           // of the colour scale at the right
constexpr std::size_t kLongestName = 18;  // characters of a class name; longer ones are cut
constexpr int kTitleSize = 2;

constexpr Color kBackground = {255, 255, 255};
constexpr Color kInk = {38, 50, 66};
constexpr Color kFaint = {168, 180, 196};
constexpr Color kNothing = {238, 238, 238};  // a cell without a number

// From the smallest to the largest value, evenly spaced in perceived lightness.
constexpr std::array<Color, 5> kBlues = {{
    {240, 245, 251},
    {187, 212, 236},
    {112, 168, 216},
    {45, 113, 178},
    {12, 53, 108},
}};

Color blue(double share) {
  const double position = std::clamp(share, 0.0, 1.0) * (kBlues.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(position), kBlues.size() - 2);
  const double weight = position - static_cast<double>(below);
  const auto mix = [&](std::uint8_t from, std::uint8_t to) {
    return static_cast<std::uint8_t>(std::lround(from + (to - from) * weight));
  };
  const Color a = kBlues[below], b = kBlues[below + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

Color ink_on(Color background) {
  const double luma = 0.299 * background.red + 0.587 * background.green + 0.114 * background.blue;
  return luma > 140 ? kInk : kBackground;
}

// Cuts between code points, so that a name in UTF-8 stays valid.
std::string shorten(std::string_view name) {
  std::size_t characters = 0;
  std::size_t cut = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if ((static_cast<unsigned char>(name[i]) & 0xc0) == 0x80) continue;
    if (++characters == kLongestName - 1) cut = i;
  }
  return characters <= kLongestName ? std::string(name) : std::string(name.substr(0, cut)) + "..";
}

// 1234 -> "1.2k", with `decimals` digits after the point.
std::string in_units(double count, int decimals) {
  for (const auto& [unit, letter] : {std::pair{1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}) {
    if (count >= unit) return fmt::format("{:.{}f}{}", count / unit, decimals, letter);
  }
  return fmt::format("{:.0f}", count);
}

// The ways to write a cell's value, the most exact first.
std::vector<std::string> spellings(double value, bool normalized) {
  if (std::isnan(value)) return {"-"};
  if (!normalized) {
    return {with_thousands(std::llround(value)), in_units(value, 1), in_units(value, 0)};
  }
  const std::string text = fmt::format("{:.2f}", value);
  return {text, text.starts_with('0') ? text.substr(1) : text};
}

bool fits(const std::string& text, int scale, int cell) {
  return text_width(text, scale) <= cell - 4 && kGlyphAscent * scale <= cell - 4;
}

// All cells have one text size, so that no cell looks more important than another.
int cell_text_scale(const ConfusionPicture& picture, int cell) {
  const bool all_fit = std::all_of(picture.cells.begin(), picture.cells.end(), [&](double value) {
    return fits(spellings(value, picture.normalized).front(), 2, cell);
  });
  return all_fit ? 2 : 1;
}

// The sizes and positions that follow from the names and the number of classes. They are computed
// before anything is drawn.
struct Layout {
  int classes = 0;
  int cell = 0;         // width and height in pixels
  int names_scale = 0;  // 0 if names do not fit
  bool turn_columns = false;
  int left = 0;  // of the cells
  int top = kMargin;
  int side = 0;  // of all cells together
  ImageSize size;
};

Layout lay_out(const std::vector<std::string>& names, const std::string& scale_top) {
  Layout layout;
  layout.classes = static_cast<int>(names.size());
  layout.cell = std::clamp(720 / layout.classes, 4, 72);
  layout.side = layout.cell * layout.classes;
  if (layout.classes < kTextlessFrom) layout.names_scale = layout.cell >= 26 ? 2 : 1;

  int longest = 0;
  for (const auto& name : names) {
    longest = std::max(longest, text_width(name, std::max(1, layout.names_scale)));
  }
  if (layout.names_scale == 0) longest = 0;
  layout.turn_columns = longest > layout.cell - 6;

  const int title = kGlyphHeight * kTitleSize;
  const int columns_height = layout.turn_columns ? longest : kGlyphHeight * layout.names_scale;
  layout.left = kMargin + title + kGap + longest + (longest > 0 ? kGap : 0);
  const int scale_room = kGap * 2 + kScaleWidth + kGap + text_width(scale_top, kTitleSize);
  layout.size = {.width = layout.left + layout.side + scale_room + kMargin,
                 .height = layout.top + layout.side + kGap + columns_height +
                           (columns_height > 0 ? kGap : 0) + title + kMargin};
  return layout;
}

// Writes the value as exactly as the cell has room for, or not at all.
void write_value(Image& image, const Rectangle& cell, double value, bool normalized, int scale,
                 Color ink) {
  for (const auto& text : spellings(value, normalized)) {
    if (!fits(text, scale, cell.width)) continue;
    draw_text(image, text,
              {.x = cell.x + (cell.width - text_width(text, scale)) / 2,
               .y = cell.y + (cell.height - kGlyphAscent * scale) / 2,
               .scale = scale,
               .color = ink});
    return;
  }
}

void draw_cells(Image& image, const Layout& layout, const ConfusionPicture& picture,
                double largest) {
  const int line = layout.cell >= 10 ? 1 : 0;
  const int side = layout.cell - line;
  const int scale = cell_text_scale(picture, side);
  for (int row = 0; row < layout.classes; ++row) {
    for (int column = 0; column < layout.classes; ++column) {
      const double value = picture.cells[row * layout.classes + column];
      const Color color = std::isnan(value) ? kNothing : blue(largest > 0 ? value / largest : 0);
      const Rectangle cell = {layout.left + column * layout.cell, layout.top + row * layout.cell,
                              side, side};
      fill(image, cell, color);
      if (layout.classes >= kTextlessFrom) continue;
      write_value(image, cell, value, picture.normalized, scale,
                  value == 0 ? kFaint : ink_on(color));
    }
  }
}

void draw_names(Image& image, const Layout& layout, const std::vector<std::string>& names) {
  const int scale = layout.names_scale;
  if (scale == 0) return;
  const int below = layout.top + layout.side + kGap;
  for (int i = 0; i < layout.classes; ++i) {
    const int width = text_width(names[i], scale);
    const int middle = i * layout.cell + layout.cell / 2;
    draw_text(image, names[i],
              {.x = layout.left - kGap - width,
               .y = layout.top + middle - kGlyphAscent * scale / 2,
               .scale = scale,
               .color = kInk});
    const int across = layout.turn_columns ? kGlyphAscent * scale : width;
    draw_text(image, names[i],
              {.x = layout.left + middle - across / 2,
               .y = below,
               .scale = scale,
               .vertical = layout.turn_columns,
               .color = kInk});
  }
}

void draw_titles(Image& image, const Layout& layout) {
  const std::string_view rows = "true", columns = "predicted";
  draw_text(image, rows,
            {.x = kMargin,
             .y = layout.top + (layout.side - text_width(rows, kTitleSize)) / 2,
             .scale = kTitleSize,
             .vertical = true,
             .color = kInk});
  draw_text(image, columns,
            {.x = layout.left + (layout.side - text_width(columns, kTitleSize)) / 2,
             .y = layout.size.height - kMargin - kGlyphHeight * kTitleSize,
             .scale = kTitleSize,
             .color = kInk});
}

void draw_scale(Image& image, const Layout& layout, const std::string& scale_top) {
  const int x = layout.left + layout.side + kGap * 2;
  const int last = std::max(1, layout.side - 1);
  for (int i = 0; i <= last; ++i) {
    fill(image, {x, layout.top + i, kScaleWidth, 1}, blue(1.0 - static_cast<double>(i) / last));
  }
  const int labels = x + kScaleWidth + kGap;
  draw_text(image, scale_top, {.x = labels, .y = layout.top, .scale = kTitleSize, .color = kInk});
  draw_text(image, "0",
            {.x = labels,
             .y = layout.top + layout.side - kGlyphAscent * kTitleSize,
             .scale = kTitleSize,
             .color = kInk});
}

void require_square(const ConfusionPicture& picture) {
  const std::size_t classes = picture.class_names.size();
  if (classes == 0) throw ConfigError("confusion matrix: expected class names, got none");
  if (picture.cells.size() != classes * classes) {
    throw ConfigError("confusion matrix: expected {} cells for {} classes, got {}",
                      classes * classes, classes, picture.cells.size());
  }
}

}  // namespace

Image draw_confusion_matrix(const ConfusionPicture& picture) {
  require_square(picture);
  std::vector<std::string> names;
  for (const auto& name : picture.class_names) names.push_back(shorten(name));

  double largest = picture.normalized ? 1.0 : 0.0;
  for (const double value : picture.cells) {
    if (value > largest) largest = value;
  }
  const std::string scale_top =
      picture.normalized ? fmt::format("{:.0f}", largest) : with_thousands(std::llround(largest));

  const Layout layout = lay_out(names, scale_top);
  Image image = make_image(layout.size, kBackground);
  draw_cells(image, layout, picture, largest);
  draw_names(image, layout, names);
  draw_titles(image, layout);
  draw_scale(image, layout, scale_top);
  return image;
}

}  // namespace lockstep::plot
