// Extends an image at its edges.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/transform.h"

namespace lockstep::data {

enum class PaddingMode {
  kConstant,   // a colour
  kEdge,       // the pixel at the edge
  kReflect,    // mirrored, without the pixel at the edge: d c b | a b c d
  kSymmetric,  // mirrored, with it: c b a | a b c d
};

struct Padding {
  std::int64_t left = 0;
  std::int64_t top = 0;
  std::int64_t right = 0;
  std::int64_t bottom = 0;
};

// `fill` has one value for all channels or one per channel, in the units of the image: 0 to 255 for
// bytes. Throws DataError if a mirrored part would be larger than the image.
torch::Tensor pad_image(const torch::Tensor& image, const Padding& padding,
                        const std::vector<double>& fill = {0},
                        PaddingMode mode = PaddingMode::kConstant);

struct ImagePadOptions {
  // {all}, {left and right, top and bottom}, or {left, top, right, bottom}, in pixels
  std::vector<std::int64_t> padding;
  std::vector<double> fill = {0};  // as in pad_image(); masks are filled with zeros
  PaddingMode padding_mode = PaddingMode::kConstant;
};

class Pad : public SampleTransform {
 public:
  // Throws ConfigError if the options are wrong.
  explicit Pad(ImagePadOptions options);

  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  ImagePadOptions options_;
  Padding padding_;
};

}  // namespace lockstep::data
