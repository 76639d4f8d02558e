// Changes of decoded pixels [H, W, C]. Internal to image/.
#pragma once

#include <torch/types.h>

#include "lockstep/image/decode.h"

namespace lockstep::data {

// How an image is made upright: first rows become columns, then they are reversed.
struct Turn {
  bool transpose = false;
  bool reverse_rows = false;     // the first row becomes the last one
  bool reverse_columns = false;  // the first column becomes the last one
};

// Of an orientation as EXIF counts them, 1 to 8.
Turn turn_of(int orientation);

torch::Tensor upright(const torch::Tensor& pixels, int orientation);
ImageSize upright(const ImageSize& stored, int orientation);

// A part of an image, which may begin and end inside of a pixel.
struct Box {
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
};

// The same part before and after an image of the size `stored` was made upright.
Box upright(const Box& box, const ImageSize& stored, int orientation);
Box as_stored(const Box& box, const ImageSize& stored, int orientation);

// Bytes or int32. Throws DataError if the pixels have no or more than four channels.
torch::Tensor to_channels(const torch::Tensor& pixels, Channels channels);

// Bytes, or int32 with 16 bits, [H, W, C] to floats [C, H, W] in [0, 1].
torch::Tensor to_floats(const torch::Tensor& pixels);

// CMYK [H, W, 4] to RGB [H, W, 3], with Pillow's numbers. The bytes are inverted, as in the files
// that Adobe's programs write: 255 is no ink.
torch::Tensor inverted_cmyk_to_rgb(const torch::Tensor& pixels);

// Two bytes per value, in the order of this machine, to int32.
torch::Tensor from_16_bits(const torch::Tensor& int16_pixels);

}  // namespace lockstep::data
