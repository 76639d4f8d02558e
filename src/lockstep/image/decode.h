// Images from the bytes of their files: JPEG, PNG, WebP and TIFF.
//
//   torch::Tensor photo = decode(bytes);                              // bytes [H, W, 3]
//   torch::Tensor scan = decode(bytes, {.channels = Channels::kGrey});  // bytes [H, W, 1]
//
// An image is turned as its EXIF orientation says. Alpha is dropped, not blended with a background,
// as Pillow's convert("RGB") does. Colours are not converted by a file's colour profile.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <torch/types.h>

#include "lockstep/transform/resample.h"

namespace lockstep::data {

enum class Channels {
  kRgb,     // 3; grey is repeated
  kGrey,    // 1; colours are weighted as Pillow's convert("L") does, of a JPEG it is the luminance
  kRgba,    // 4; an image without alpha is opaque
  kStored,  // 1 to 4, as the file has them; palettes and CMYK become colours
};

struct DecodeOptions {
  Channels channels = Channels::kRgb;
  // Floats [C, H, W] in [0, 1] instead of bytes [H, W, C], so that nothing of 16 bits is lost. By
  // default the high byte of 16 bits is taken.
  bool floats = false;
  bool orient = true;  // turn the image as its EXIF orientation says
  // An image with more pixels is an error before memory is taken for it. The default is the number
  // at which Pillow refuses an image.
  std::int64_t most_pixels = 178'956'970;
  // Decode a whole JPEG in its full size, even if a window needs less of it.
  bool exact = false;
};

using ImageBytes = std::span<const std::uint8_t>;

// Throws DataError if the bytes are of another format, or damaged, incomplete or too large. The
// message does not name the file.
torch::Tensor decode(ImageBytes bytes, const DecodeOptions& options = {});

// Says which part of an image is wanted, once the size of the upright image is known.
using WindowRequest = std::function<Window(const ImageSize&)>;

// resample(decode(bytes, options), window(size)), without decoding what the window does not need: a
// JPEG is decoded at 1/8, 1/4 or 1/2 of its size if that is still at least as large as the result,
// and only the rows and columns of the window are transformed. At full size the result is the same
// as with `exact`. At a lower size the means of pixels are computed by libjpeg, and a result
// differs by about one level of 255 on average for photos. With `floats`, the window of a JPEG is
// resized in bytes, as the file has them, and then converted; `exact` and the other formats resize
// floats. This differs by the rounding to bytes. Damage outside of the window may stay unnoticed; a
// file that ends too early does not. Throws DataError if the window is not inside the image.
torch::Tensor decode(ImageBytes bytes, const DecodeOptions& options, const WindowRequest& window);

// Decodes the image and forgets it. Throws as decode().
void check_image(ImageBytes bytes, const DecodeOptions& options = {});

}  // namespace lockstep::data
