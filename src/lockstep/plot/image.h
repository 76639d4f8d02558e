// An image in memory, and its encoding as PNG. Loggers, which users may write, are given images, so
// these names are in namespace lockstep. The other names of this folder are in lockstep::plot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct Color {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;

  bool operator==(const Color&) const = default;
};

struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb = {};  // width * height * 3, rows from the top
};

// The bytes of a PNG file with the image. Throws Error if the size does not match the pixels.
std::string encode_png(const Image& image);

// An image of one colour. Both sides must be positive.
struct ImageSize {
  int width = 0;
  int height = 0;
};
Image make_image(ImageSize size, Color color);

// These functions ignore pixels outside of the image.
void set_pixel(Image& image, int x, int y, Color color);

struct Rectangle {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
};
void fill(Image& image, const Rectangle& area, Color color);

}  // namespace lockstep
