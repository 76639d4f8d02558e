// Writes photos, for example to make a data set.
#pragma once

#include <string>

#include <torch/types.h>

namespace lockstep::data {

struct JpegOptions {
  int quality = 75;  // 1 to 100
};

// The bytes of a JPEG file with an image of bytes [H, W, 3] (RGB), [H, W, 1] or [H, W] (grey).
// Throws DataError if the tensor is of another shape or type, and ConfigError if the quality is out
// of range. encode_png (lockstep/plot/image.h) writes drawings without loss.
std::string encode_jpeg(const torch::Tensor& image, const JpegOptions& options = {});

}  // namespace lockstep::data
