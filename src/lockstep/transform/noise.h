// Blur, noise and erased parts. Masks stay as they are.
#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/transform.h"

namespace lockstep::data {

struct BlurParameters {
  std::int64_t kernel_size = 3;  // odd
  double sigma = 1;              // in pixels
};

// A Gaussian blur of bytes or floats. Beyond its edges the image is mirrored. Values are those of
// torchvision. Throws DataError if the image is smaller than half of the kernel.
torch::Tensor gaussian_blur(const torch::Tensor& image, const BlurParameters& parameters);

struct GaussianBlurOptions {
  std::int64_t kernel_size = 3;            // odd
  std::vector<double> sigma = {0.1, 2.0};  // {lowest, highest}, or {sigma}
};

// A blur of random strength.
class GaussianBlur : public SampleTransform {
 public:
  // Throws ConfigError if the options are wrong, as do the others.
  explicit GaussianBlur(GaussianBlurOptions options);

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  GaussianBlurOptions options_;
};

struct GaussianNoiseOptions {
  double std = 0.1;
};

// x + std * normal noise, for floats of any shape.
class GaussianNoise : public SampleTransform {
 public:
  explicit GaussianNoise(const GaussianNoiseOptions& options = {});

  bool is_random() const override { return true; }
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

  // In a step of training, such as the augment of a SelfSupervisedRunner. The numbers are those of
  // LibTorch's generator, which is seeded for each batch and shard.
  torch::Tensor apply(const torch::Tensor& batch) const override;

 private:
  GaussianNoiseOptions options_;
};

struct Rectangle {
  std::int64_t top = 0;
  std::int64_t left = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// A copy in which the rectangle has this value, which is broadcast to [C, height, width]. Throws
// DataError if the rectangle is not inside the image, or the image is not [C, H, W] floats.
torch::Tensor erase(const torch::Tensor& image, const Rectangle& rectangle,
                    const torch::Tensor& value);

struct RandomErasingOptions {
  double probability = 0.5;
  std::vector<double> scale = {0.02, 0.33};  // the area of the rectangle, as a part of the image's
  std::vector<double> ratio = {0.3, 3.3};    // its height divided by its width
  std::vector<double> value = {0};           // one for all channels or one per channel
  bool noise = false;                        // normal noise instead of the value
};

// Erases a rectangle of random size, shape and place of floats [C, H, W]. If ten tries give none
// that is smaller than the image, nothing is erased.
class RandomErasing : public SampleTransform {
 public:
  explicit RandomErasing(RandomErasingOptions options = {});

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  RandomErasingOptions options_;
};

}  // namespace lockstep::data
