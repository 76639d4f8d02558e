#include "lockstep/plot/image.h"

#include <png.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void require_size(int width, int height) {
  if (width <= 0 || height <= 0) {
    throw Error("image: expected a positive width and height, got {} x {}", width, height);
  }
}

}  // namespace

std::string encode_png(const Image& image) {
  require_size(image.width, image.height);
  const auto expected = static_cast<std::size_t>(image.width) * image.height * 3;
  if (image.rgb.size() != expected) {
    throw Error("image: expected {} bytes for {} x {} pixels, got {}", expected, image.width,
                image.height, image.rgb.size());
  }

  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  header.flags = PNG_IMAGE_FLAG_FAST;  // enough for drawings, which have large areas of one colour

  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::string bytes(size, '\0');
  const int ok = png_image_write_to_memory(&header, bytes.data(), &size, 0, image.rgb.data(),
                                           image.width * 3, nullptr);
  if (ok == 0) {
    const std::string cause = header.message;
    png_image_free(&header);
    throw Error("image: cannot encode {} x {} pixels as PNG: {}", image.width, image.height, cause);
  }
  bytes.resize(size);
  return bytes;
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
