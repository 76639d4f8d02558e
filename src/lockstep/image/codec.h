// Shared by the decoders of single formats. Internal to image/: other code calls decode().
#pragma once

#include <cstdint>

#include <torch/types.h>

#include "lockstep/image/decode.h"

namespace lockstep::data {

// An image as its file has it.
struct Raster {
  // [H, W, C], bytes, or int32 with values of 16 bits if the options ask for floats. One channel is
  // grey, two are grey and alpha, three RGB and four RGBA.
  torch::Tensor pixels;
  int orientation = 1;  // of EXIF, 1 to 8
};

Raster decode_png(ImageBytes bytes, const DecodeOptions& options);
Raster decode_webp(ImageBytes bytes, const DecodeOptions& options);
Raster decode_tiff(ImageBytes bytes, const DecodeOptions& options);
// With a window the result is upright, of the window's size, and its orientation is 1.
Raster decode_jpeg(ImageBytes bytes, const DecodeOptions& options,
                   const WindowRequest& window = {});

// Throws DataError if the image has no pixels, or more than options.most_pixels.
void check_size(const ImageSize& size, const DecodeOptions& options);

// Throws DataError if `values` bytes of pixels cannot come from the bytes of the file, because no
// packing makes data `factor` times smaller.
struct PackedSize {
  std::int64_t values = 0;
  std::int64_t bytes = 0;
  std::int64_t factor = 1;
};
void check_packed_size(const PackedSize& size);

}  // namespace lockstep::data
