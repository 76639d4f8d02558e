#include "lockstep/plot/image.h"

#include <zlib.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void require_size(int width, int height) {
  if (width <= 0 || height <= 0) {
    throw Error("image: expected a positive width and height, got {} x {}", width, height);
  }
}

void append_big_endian(std::string& bytes, std::uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xff);
}

// A part of a PNG file: its length, its name, its data, and a checksum of name and data.
void append_chunk(std::string& png, const std::string& name, const std::string& data) {
  append_big_endian(png, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = png.size();
  png += name + data;
  const auto* const checked = reinterpret_cast<const Bytef*>(png.data() + begin);
  append_big_endian(png, static_cast<std::uint32_t>(
                             ::crc32_z(::crc32_z(0, nullptr, 0), checked, png.size() - begin)));
}

std::string compressed(const std::string& data) {
  uLongf size = ::compressBound(data.size());
  std::string out(size, '\0');
  // Drawn pictures have large areas of one colour, for which the fastest level is good enough.
  const int result =
      ::compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                  reinterpret_cast<const Bytef*>(data.data()), data.size(), Z_BEST_SPEED);
  if (result != Z_OK)
    throw Error("image: cannot compress {} bytes: zlib error {}", data.size(), result);
  out.resize(size);
  return out;
}

}  // namespace

std::string encode_png(const Image& image) {
  require_size(image.width, image.height);
  const auto row = static_cast<std::size_t>(image.width) * 3;
  const std::size_t expected = row * static_cast<std::size_t>(image.height);
  if (image.rgb.size() != expected) {
    throw Error("image: expected {} bytes for {} x {} pixels, got {}", expected, image.width,
                image.height, image.rgb.size());
  }
  std::string rows;
  rows.reserve(expected + static_cast<std::size_t>(image.height));
  for (std::size_t at = 0; at < expected; at += row) {
    rows += '\0';  // the row is not filtered
    rows.append(reinterpret_cast<const char*>(image.rgb.data() + at), row);
  }
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(image.width));
  append_big_endian(header, static_cast<std::uint32_t>(image.height));
  header += {8, 2, 0, 0, 0};  // 8 bits per colour, RGB, and the only methods that PNG has

  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", compressed(rows));
  append_chunk(png, "IEND", "");
  return png;
}

Image make_image(ImageSize size, Color color) {
  require_size(size.width, size.height);
  Image image{.width = size.width, .height = size.height};
  image.rgb.resize(static_cast<std::size_t>(size.width) * size.height * 3);
  fill(image, {.x = 0, .y = 0, .width = size.width, .height = size.height}, color);
  return image;
}

void set_pixel(Image& image, int x, int y, Color color) {
  if (x < 0 || y < 0 || x >= image.width || y >= image.height) return;
  const std::size_t at = (static_cast<std::size_t>(y) * image.width + x) * 3;
  image.rgb[at] = color.red;
  image.rgb[at + 1] = color.green;
  image.rgb[at + 2] = color.blue;
}

void fill(Image& image, const Rectangle& area, Color color) {
  for (int y = area.y; y < area.y + area.height; ++y) {
    for (int x = area.x; x < area.x + area.width; ++x) set_pixel(image, x, y, color);
  }
}

}  // namespace lockstep
