#include "lockstep/transform/trivial_augment.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/color.h"

namespace lockstep::data {
namespace {

using Change = torch::Tensor (*)(const torch::Tensor&, double, const WarpOptions&);

struct Augmentation {
  const char* name;
  Change change;
  bool moves = false;  // it applies to masks, too
  // From the weakest to the strongest. If both are zero, there is no strength.
  double first = 0;
  double last = 0;
  bool both_signs = false;
};

double degrees_of_slope(double slope) {
  return std::atan(slope) * (180 / std::numbers::pi);
}

torch::Tensor shear_by(const torch::Tensor& image, const Point& slope, const WarpOptions& options) {
  return affine(image,
                {.shear = {.x = degrees_of_slope(slope.x), .y = degrees_of_slope(slope.y)},
                 .center = Point{}},
                options);
}

// The ranges are those of the paper's "wide" space.
constexpr std::array<Augmentation, 14> kAugmentations = {{
    {.name = "Identity",
     .change = [](const torch::Tensor& image, double, const WarpOptions&) { return image; }},
    {.name = "ShearX",
     .change = [](const torch::Tensor& image, double slope,
                  const WarpOptions& options) { return shear_by(image, {.x = slope}, options); },
     .moves = true,
     .last = 0.99,
     .both_signs = true},
    {.name = "ShearY",
     .change = [](const torch::Tensor& image, double slope,
                  const WarpOptions& options) { return shear_by(image, {.y = slope}, options); },
     .moves = true,
     .last = 0.99,
     .both_signs = true},
    {.name = "TranslateX",
     .change =
         [](const torch::Tensor& image, double pixels, const WarpOptions& options) {
           return affine(image, {.translate = {.x = std::trunc(pixels)}}, options);
         },
     .moves = true,
     .last = 32,
     .both_signs = true},
    {.name = "TranslateY",
     .change =
         [](const torch::Tensor& image, double pixels, const WarpOptions& options) {
           return affine(image, {.translate = {.y = std::trunc(pixels)}}, options);
         },
     .moves = true,
     .last = 32,
     .both_signs = true},
    {.name = "Rotate",
     .change = [](const torch::Tensor& image, double angle,
                  const WarpOptions& options) { return rotate(image, {.angle = angle}, options); },
     .moves = true,
     .last = 135,
     .both_signs = true},
    {.name = "Brightness",
     .change = [](const torch::Tensor& image, double more,
                  const WarpOptions&) { return adjust_brightness(image, 1 + more); },
     .last = 0.99,
     .both_signs = true},
    {.name = "Color",
     .change = [](const torch::Tensor& image, double more,
                  const WarpOptions&) { return adjust_saturation(image, 1 + more); },
     .last = 0.99,
     .both_signs = true},
    {.name = "Contrast",
     .change = [](const torch::Tensor& image, double more,
                  const WarpOptions&) { return adjust_contrast(image, 1 + more); },
     .last = 0.99,
     .both_signs = true},
    {.name = "Sharpness",
     .change = [](const torch::Tensor& image, double more,
                  const WarpOptions&) { return adjust_sharpness(image, 1 + more); },
     .last = 0.99,
     .both_signs = true},
    {.name = "Posterize",
     .change = [](const torch::Tensor& image, double bits,
                  const WarpOptions&) { return posterize(image, static_cast<int>(bits)); },
     .first = 8,
     .last = 2},
    {.name = "Solarize",
     .change = [](const torch::Tensor& image, double threshold,
                  const WarpOptions&) { return solarize(image, threshold); },
     .first = 255,
     .last = 0},
    {.name = "AutoContrast",
     .change = [](const torch::Tensor& image, double,
                  const WarpOptions&) { return autocontrast(image); }},
    {.name = "Equalize",
     .change = [](const torch::Tensor& image, double,
                  const WarpOptions&) { return equalize(image); }},
}};

}  // namespace

const std::vector<std::string>& augmentation_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Augmentation& augmentation : kAugmentations) all.emplace_back(augmentation.name);
    return all;
  }();
  return names;
}

torch::Tensor augment(const torch::Tensor& image, const std::string& name, double magnitude,
                      const WarpOptions& options) {
  for (const Augmentation& augmentation : kAugmentations) {
    if (augmentation.name == name) return augmentation.change(image, magnitude, options);
  }
  throw ConfigError("TrivialAugment: no change '{}'; {}", name,
                    suggest(name, augmentation_names()));
}

TrivialAugmentWide::TrivialAugmentWide(TrivialAugmentOptions options)
    : options_(std::move(options)) {
  if (options_.bins < 2) {
    throw ConfigError("TrivialAugmentWide: bins: expected 2 or more, got {}", options_.bins);
  }
  check_warp("TrivialAugmentWide",
             {.interpolation = options_.interpolation, .fill = options_.fill});
}

torch::Tensor TrivialAugmentWide::apply(const torch::Tensor& sample, Draw& draw) const {
  // All of them are drawn every time, so that each sample draws as many numbers.
  const Augmentation& chosen =
      kAugmentations[static_cast<std::size_t>(draw.random.below(kAugmentations.size()))];
  const auto bin = static_cast<double>(draw.random.below(options_.bins));
  const bool negative = draw.random.chance(0.5) && chosen.both_signs;

  const double part = bin / static_cast<double>(options_.bins - 1);
  double magnitude = chosen.first + (chosen.last - chosen.first) * part;
  if (std::string_view(chosen.name) == "Posterize") {
    magnitude = chosen.first - std::nearbyint((chosen.first - chosen.last) * part);
  }
  if (negative) magnitude = -magnitude;
  if (draw.is_mask) return chosen.moves ? chosen.change(sample, magnitude, {}) : sample;
  if (sample.scalar_type() != torch::kUInt8) {
    throw DataError("TrivialAugmentWide: expected bytes, got {}; put it before ToTensor",
                    describe(sample));
  }
  return chosen.change(sample, magnitude,
                       {.interpolation = options_.interpolation, .fill = options_.fill});
}

}  // namespace lockstep::data
