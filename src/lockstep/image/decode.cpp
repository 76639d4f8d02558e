#include "lockstep/image/decode.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/image/codec.h"
#include "lockstep/image/pixels.h"

namespace lockstep::data {
namespace {

enum class ImageFormat { kJpeg, kPng, kWebp, kTiff };

ImageFormat format_of(ImageBytes bytes) {
  using namespace std::string_view_literals;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<std::size_t>(bytes.size(), 12));
  if (text.starts_with("\xff\xd8\xff"sv)) return ImageFormat::kJpeg;
  if (text.starts_with("\x89PNG\r\n\x1a\n"sv)) return ImageFormat::kPng;
  if (text.starts_with("RIFF"sv) && text.size() == 12 && text.ends_with("WEBP"sv)) {
    return ImageFormat::kWebp;
  }
  for (const std::string_view magic : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (text.starts_with(magic)) return ImageFormat::kTiff;
  }
  if (text.empty()) throw DataError("the file is empty");
  throw DataError("expected a JPEG, PNG, WebP or TIFF file, got one that begins with '{}'",
                  printable(text));
}

Raster decode_raster(ImageBytes bytes, const DecodeOptions& options) {
  switch (format_of(bytes)) {
    case ImageFormat::kJpeg:
      return decode_jpeg(bytes, options);
    case ImageFormat::kPng:
      return decode_png(bytes, options);
    case ImageFormat::kWebp:
      return decode_webp(bytes, options);
    case ImageFormat::kTiff:
      break;
  }
  return decode_tiff(bytes, options);
}

torch::Tensor finish(const Raster& raster, const DecodeOptions& options) {
  torch::Tensor pixels = to_channels(raster.pixels, options.channels);
  if (options.orient) pixels = upright(pixels, raster.orientation);
  return options.floats ? to_floats(pixels) : pixels;
}

// The decoder of JPEG scales and turns a window. So that a mistake is reported in the numbers of
// the request, it is found before. resample() allows the same rounding errors.
Window checked(const Window& window, const ImageSize& image) {
  constexpr double kRounding = 1e-6;
  const auto fits = [](double first, double length, std::int64_t pixels) {
    return first > -kRounding && length > 0 &&
           first + length < static_cast<double>(pixels) + kRounding;
  };
  if (fits(window.top, window.height, image.height) &&
      fits(window.left, window.width, image.width)) {
    return window;
  }
  throw DataError(
      "expected a window inside the image of {} x {} (height x width), got {} x {} from ({}, {}) "
      "on",
      image.height, image.width, window.height, window.width, window.top, window.left);
}

}  // namespace

void check_size(const ImageSize& size, const DecodeOptions& options) {
  if (size.height < 1 || size.width < 1) {
    throw DataError("expected an image with pixels, got {} x {} (height x width)", size.height,
                    size.width);
  }
  // Behind this, sizes in bytes would overflow.
  constexpr std::int64_t kMostPixels = std::int64_t{1} << 40;
  const std::int64_t most = std::min(options.most_pixels, kMostPixels);
  if (size.height > most / size.width) {
    throw DataError(
        "the image has {} x {} pixels (height x width), which is more than the limit of {}; set "
        "most_pixels if it is meant to be so large",
        size.height, size.width, most);
  }
}

void check_packed_size(const PackedSize& size) {
  if (size.values / size.factor <= size.bytes) return;
  throw DataError("the header is damaged: an image of this size does not fit into {} bytes",
                  size.bytes);
}

torch::Tensor decode(ImageBytes bytes, const DecodeOptions& options) {
  return finish(decode_raster(bytes, options), options);
}

torch::Tensor decode(ImageBytes bytes, const DecodeOptions& options, const WindowRequest& window) {
  if (!options.exact && format_of(bytes) == ImageFormat::kJpeg) {
    const auto request = [&](const ImageSize& size) { return checked(window(size), size); };
    return finish(decode_jpeg(bytes, options, request), options);
  }
  const torch::Tensor image = decode(bytes, options);
  return resample(image, window(image_size(image)));
}

void check_image(ImageBytes bytes, const DecodeOptions& options) {
  decode_raster(bytes, options);
}

}  // namespace lockstep::data
