// Resizes a part of an image:
//
//   resample(photo, {.top = 10, .left = 20, .height = 180, .width = 180, .size = {128, 128}})
//
// Bytes get the numbers of Pillow, and so those that torchvision's transforms give for Pillow's
// images, to the bit. Floats get those of torch's interpolate, except for rounding.
#pragma once

#include <cstdint>

#include <torch/types.h>

#include "lockstep/data/transform.h"
#include "lockstep/transform/layout.h"

namespace lockstep::data {

enum class Interpolation {
  kNearest,   // one pixel of the image, as Pillow chooses it; the only one for masks
  kBilinear,  // a triangle of neighbours
  kBicubic,   // a cubic curve through neighbours; results may exceed the range of the image
};

// A part of an image in its pixels, and the size that it is resized to.
struct Window {
  // The edges may be fractions of a pixel. Pixels that are not even touched by the window are not
  // used: the result is that of Pillow's crop() to the touched pixels and resize(box=…).
  double top = 0;
  double left = 0;
  double height = 0;
  double width = 0;
  ImageSize size;  // of the result
  Interpolation interpolation = Interpolation::kBilinear;
  // Scaling down averages all pixels that a result covers. Without it only the nearest 2x2 or 4x4
  // pixels count, as in torch's interpolate. Pillow always does this.
  bool antialias = true;
};

// For bytes [H, W] or [H, W, C] and floats [C, H, W] or [H, W]. With kNearest also for integers.
// Returns a part of the image itself if nothing is resized. Throws DataError if the tensor cannot
// be an image or the window is not inside it.
torch::Tensor resample(const torch::Tensor& image, const Window& window);

// A transform that cuts out a part and resizes it. A data set that decodes images asks for the
// window before it decodes, and reads only the part that is needed.
class WindowTransform : public SampleTransform {
 public:
  // The part of an image of this size. Draws its random numbers from `draw.random`.
  virtual Window window(const ImageSize& image, Draw& draw) const = 0;

  using SampleTransform::apply;
  // resample(sample, window(…)), with kNearest for a mask.
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const final;
};

}  // namespace lockstep::data
