// Flips, rotations and other affine maps of images. Values of bytes are those of Pillow, and so
// those of torchvision's transforms on Pillow's images; floats are moved in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/types.h>

#include "lockstep/transform/resample.h"

namespace lockstep::data {

torch::Tensor horizontal_flip(const torch::Tensor& image);  // left and right are exchanged
torch::Tensor vertical_flip(const torch::Tensor& image);    // top and bottom are exchanged

// How the pixels of a moved image are found.
struct WarpOptions {
  Interpolation interpolation = Interpolation::kNearest;  // or kBilinear
  // Where the result shows no part of the image: one value for all channels or one per channel, in
  // the units of the image.
  std::vector<double> fill = {0};
};

// Throws ConfigError, which names `owner`, for kBicubic and without a value of `fill`.
void check_warp(std::string_view owner, const WarpOptions& options);

// Where in the image a point (x, y) of the result comes from: (a x + b y + c, d x + e y + f).
struct AffineMap {
  double a = 1;
  double b = 0;
  double c = 0;
  double d = 0;
  double e = 1;
  double f = 0;
};

// A result of the given size. Throws ConfigError for kBicubic.
torch::Tensor warp(const torch::Tensor& image, const AffineMap& map, const ImageSize& size,
                   const WarpOptions& options = {});

struct Point {
  double x = 0;
  double y = 0;
};

struct AffineParameters {
  double angle = 0;                  // in degrees, clockwise
  Point translate = {};              // in pixels
  double scale = 1;                  // above 1: larger
  Point shear = {};                  // in degrees
  std::optional<Point> center = {};  // of the rotation, in pixels; default: the middle
};

// Rotated, scaled, sheared and moved, in a picture of the same size.
torch::Tensor affine(const torch::Tensor& image, const AffineParameters& parameters,
                     const WarpOptions& options = {});

struct RotateParameters {
  double angle = 0;     // in degrees, counter-clockwise
  bool expand = false;  // the result is so large that it shows the whole image
};

torch::Tensor rotate(const torch::Tensor& image, const RotateParameters& parameters,
                     const WarpOptions& options = {});

struct FlipOptions {
  double probability = 0.5;
};

class RandomHorizontalFlip : public SampleTransform {
 public:
  // Throws ConfigError if the options are wrong, as do the others.
  explicit RandomHorizontalFlip(const FlipOptions& options = {});

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  FlipOptions options_;
};

class RandomVerticalFlip : public SampleTransform {
 public:
  explicit RandomVerticalFlip(const FlipOptions& options = {});

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  FlipOptions options_;
};

struct RandomRotationOptions {
  std::vector<double> degrees;  // {lowest, highest}, or {d} for -d to d; counter-clockwise
  Interpolation interpolation = Interpolation::kNearest;
  bool expand = false;             // as in RotateParameters; then images have different sizes
  std::vector<double> fill = {0};  // as in WarpOptions; masks are filled with zeros
};

class RandomRotation : public SampleTransform {
 public:
  explicit RandomRotation(RandomRotationOptions options);

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  RandomRotationOptions options_;
};

struct RandomAffineOptions {
  std::vector<double> degrees;         // {lowest, highest}, or {d} for -d to d
  std::vector<double> translate = {};  // {most x, most y}, as parts of width and height
  std::vector<double> scale = {};      // {lowest, highest}
  // {lowest, highest} along x in degrees, or {d} for -d to d; or four numbers, the last two along y
  std::vector<double> shear = {};
  Interpolation interpolation = Interpolation::kNearest;
  std::vector<double> fill = {0};  // as in WarpOptions; masks are filled with zeros
};

class RandomAffine : public SampleTransform {
 public:
  explicit RandomAffine(RandomAffineOptions options);

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

  // The random part, for an image of this size.
  AffineParameters parameters(const ImageSize& image, SampleRandom& random) const;

 private:
  RandomAffineOptions options_;
};

}  // namespace lockstep::data
