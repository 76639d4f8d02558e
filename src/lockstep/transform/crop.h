// Transforms that cut out a part of an image or resize it. They have the results of torchvision's
// transforms on Pillow's images, with Lockstep's random numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/transform/pad.h"
#include "lockstep/transform/resample.h"

namespace lockstep::data {

struct ResizeOptions {
  // {height, width}; or {length} of the shorter side, and the shape of the image is kept.
  std::vector<std::int64_t> size;
  Interpolation interpolation = Interpolation::kBilinear;
  bool antialias = true;
  // With {length}: if the longer side would be longer than this, the image is made smaller.
  std::optional<std::int64_t> max_size = {};
};

class Resize : public WindowTransform {
 public:
  // Throws ConfigError if the options are wrong, as do the others.
  explicit Resize(ResizeOptions options);

  // Throws DataError if the result would have more than 2^30 pixels, as that of a thin image may.
  Window window(const ImageSize& image, Draw& draw) const override;

 private:
  ResizeOptions options_;
};

struct CenterCropOptions {
  std::vector<std::int64_t> size;  // {height, width}, or {length} of a square
};

// Throws DataError for an image that is smaller than the crop.
class CenterCrop : public WindowTransform {
 public:
  explicit CenterCrop(const CenterCropOptions& options);

  Window window(const ImageSize& image, Draw& draw) const override;

 private:
  ImageSize size_;
};

struct RandomCropOptions {
  std::vector<std::int64_t> size;          // {height, width}, or {length} of a square
  std::vector<std::int64_t> padding = {};  // around the image before it is cropped; as in Pad
  std::vector<double> fill = {0};          // of the padding; as in Pad
  PaddingMode padding_mode = PaddingMode::kConstant;
};

// A part at a random place. It is a chain of up to two steps, the padding and the crop, so that a
// data set that decodes images sees the crop as a window. Throws DataError for an image that is
// smaller than the crop.
class RandomCrop : public Compose {
 public:
  explicit RandomCrop(const RandomCropOptions& options);
};

struct RandomResizedCropOptions {
  std::vector<std::int64_t> size;               // {height, width}, or {length} of a square
  std::vector<double> scale = {0.08, 1.0};      // the part's area, as a part of the image's
  std::vector<double> ratio = {0.75, 4.0 / 3};  // the part's width divided by its height
  Interpolation interpolation = Interpolation::kBilinear;
  bool antialias = true;
};

// A part of random size, shape and place, resized. If ten tries give no part that is inside the
// image, it is the largest one in the middle with an allowed shape.
class RandomResizedCrop : public WindowTransform {
 public:
  explicit RandomResizedCrop(const RandomResizedCropOptions& options);

  bool is_random() const override { return true; }
  Window window(const ImageSize& image, Draw& draw) const override;

 private:
  RandomResizedCropOptions options_;
  ImageSize size_;
};

}  // namespace lockstep::data
