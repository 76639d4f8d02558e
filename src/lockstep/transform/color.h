// Colours of images: bytes [H, W] or [H, W, 3], or floats [3, H, W] or [1, H, W] in [0, 1]. Bytes
// have the values of Pillow, floats those of torchvision. Masks have no colours, and stay as they
// are.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/transform.h"

namespace lockstep::data {

// All of these throw DataError if the tensor is not such an image. Factors are 0 or more, and 1
// changes nothing.
torch::Tensor adjust_brightness(const torch::Tensor& image, double factor);  // 0: black
torch::Tensor adjust_contrast(const torch::Tensor& image, double factor);    // 0: the mean grey
torch::Tensor adjust_saturation(const torch::Tensor& image, double factor);  // 0: grey
torch::Tensor adjust_sharpness(const torch::Tensor& image, double factor);  // 0: smooth; bytes only
// Turns the circle of hues by this part of it, -0.5 to 0.5. Grey images have no hue.
torch::Tensor adjust_hue(const torch::Tensor& image, double turn);

// The brightness of each pixel, with 1 channel or, all the same, with 3. Of [H, W, 3] it makes
// [H, W, 1].
torch::Tensor to_grayscale(const torch::Tensor& image, std::int64_t channels = 1);

// Of bytes only.
torch::Tensor posterize(const torch::Tensor& image, int bits);  // keeps the highest 0 to 8 bits
torch::Tensor solarize(const torch::Tensor& image, double threshold);  // inverts values from it on
torch::Tensor autocontrast(const torch::Tensor& image);                // each channel from 0 to 255
torch::Tensor equalize(const torch::Tensor& image);  // all values of a channel equally often

struct ColorJitterOptions {
  // The factors: {lowest, highest}, or {x} for 1 - x (but not below 0) to 1 + x. Empty: unchanged.
  std::vector<double> brightness = {};
  std::vector<double> contrast = {};
  std::vector<double> saturation = {};
  std::vector<double> hue = {};  // the turn: {lowest, highest}, or {x} for -x to x
};

// Changes them in a random order, by random factors.
class ColorJitter : public SampleTransform {
 public:
  // Throws ConfigError if the options are wrong, as do the others.
  explicit ColorJitter(ColorJitterOptions options);

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  ColorJitterOptions options_;
};

struct GrayscaleOptions {
  std::int64_t channels = 1;  // of the result: 1, or 3 that are all the same
};

class Grayscale : public SampleTransform {
 public:
  explicit Grayscale(const GrayscaleOptions& options = {});

  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  GrayscaleOptions options_;
};

struct RandomGrayscaleOptions {
  double probability = 0.1;
};

// The result has as many channels as the image.
class RandomGrayscale : public SampleTransform {
 public:
  explicit RandomGrayscale(const RandomGrayscaleOptions& options = {});

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  RandomGrayscaleOptions options_;
};

}  // namespace lockstep::data
