// One random change of random strength per image (Müller and Hutter, 2021).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/transform/geometry.h"

namespace lockstep::data {

// What TrivialAugmentWide chooses from, with torchvision's names: Identity, ShearX, ShearY,
// TranslateX, TranslateY, Rotate, Brightness, Color, Contrast, Sharpness, Posterize, Solarize,
// AutoContrast, Equalize.
const std::vector<std::string>& augmentation_names();

// One of them. The magnitude is a shear, pixels, degrees, what is added to a factor of 1, a number
// of bits or a threshold. Throws ConfigError for another name.
torch::Tensor augment(const torch::Tensor& image, const std::string& name, double magnitude,
                      const WarpOptions& options = {});

struct TrivialAugmentOptions {
  std::int64_t bins = 31;  // how many strengths there are of each change
  Interpolation interpolation = Interpolation::kNearest;
  std::vector<double> fill = {0};  // as in WarpOptions; masks are filled with zeros
};

// For bytes. A mask is moved as the image is, and its values stay.
class TrivialAugmentWide : public SampleTransform {
 public:
  // Throws ConfigError if the options are wrong.
  explicit TrivialAugmentWide(TrivialAugmentOptions options = {});

  bool is_random() const override { return true; }
  using SampleTransform::apply;
  torch::Tensor apply(const torch::Tensor& sample, Draw& draw) const override;

 private:
  TrivialAugmentOptions options_;
};

}  // namespace lockstep::data
