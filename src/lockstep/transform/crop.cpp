#include "lockstep/transform/crop.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/transform/options.h"

namespace lockstep::data {
namespace {

// Python's round(): halves go to the even number.
std::int64_t round_as_python(double value) {
  return static_cast<std::int64_t>(std::nearbyint(value));
}

void check_crop_fits(std::string_view owner, const ImageSize& crop, const ImageSize& image) {
  if (crop.height <= image.height && crop.width <= image.width) return;
  throw DataError(
      "{}: expected an image of at least {} x {} (height x width), got {} x {}; put a Resize or a "
      "Pad before it",
      owner, crop.height, crop.width, image.height, image.width);
}

Window cut_out(const ImageSize& size, std::int64_t top, std::int64_t left) {
  return {.top = static_cast<double>(top),
          .left = static_cast<double>(left),
          .height = static_cast<double>(size.height),
          .width = static_cast<double>(size.width),
          .size = size};
}

// An image that is one pixel wide and very long would take all memory if its shorter side is made
// longer.
void check_resized(const ImageSize& image, const ImageSize& resized) {
  constexpr double kMostPixels = 1 << 30;
  if (static_cast<double>(resized.height) * static_cast<double>(resized.width) <= kMostPixels) {
    return;
  }
  throw DataError(
      "Resize: expected a result of at most 2^30 pixels, got {} x {} (height x width) from an "
      "image "
      "of {} x {}; set max_size, or give height and width as size",
      resized.height, resized.width, image.height, image.width);
}

// The step of RandomCrop after the padding.
class RandomPlace : public WindowTransform {
 public:
  explicit RandomPlace(const ImageSize& size) : size_(size) {}

  bool is_random() const override { return true; }

  Window window(const ImageSize& image, Draw& draw) const override {
    check_crop_fits("RandomCrop", size_, image);
    const std::int64_t top = draw.random.below(image.height - size_.height + 1);
    const std::int64_t left = draw.random.below(image.width - size_.width + 1);
    return cut_out(size_, top, left);
  }

 private:
  ImageSize size_;
};

std::vector<TransformPtr> random_crop_steps(const RandomCropOptions& options) {
  std::vector<TransformPtr> steps;
  if (!options.padding.empty()) {
    steps.push_back(Pad(
        {.padding = options.padding, .fill = options.fill, .padding_mode = options.padding_mode}));
  }
  steps.push_back(RandomPlace(read_size("RandomCrop", options.size)));
  return steps;
}

}  // namespace

Resize::Resize(ResizeOptions options) : options_(std::move(options)) {
  const ImageSize size = read_size("Resize", options_.size);
  if (!options_.max_size) return;
  if (options_.size.size() != 1) {
    throw ConfigError(
        "Resize: max_size: expected it with one size, that of the shorter side, got {} with a "
        "height of {} and a width of {}",
        *options_.max_size, size.height, size.width);
  }
  if (*options_.max_size <= size.height) {
    throw ConfigError("Resize: max_size: expected more than the shorter side's {}, got {}",
                      size.height, *options_.max_size);
  }
}

Window Resize::window(const ImageSize& image, Draw&) const {
  ImageSize size{.height = options_.size.front(), .width = options_.size.back()};
  if (options_.size.size() == 1) {
    // The longer side is rounded down, as in torchvision.
    const std::int64_t shorter = std::min(image.height, image.width);
    const std::int64_t longer = std::max(image.height, image.width);
    std::int64_t new_shorter = options_.size.front();
    std::int64_t new_longer = new_shorter * longer / shorter;
    if (options_.max_size && new_longer > *options_.max_size) {
      new_shorter = std::max<std::int64_t>(1, *options_.max_size * new_shorter / new_longer);
      new_longer = *options_.max_size;
    }
    size = image.width <= image.height ? ImageSize{.height = new_longer, .width = new_shorter}
                                       : ImageSize{.height = new_shorter, .width = new_longer};
  }
  check_resized(image, size);
  return {.height = static_cast<double>(image.height),
          .width = static_cast<double>(image.width),
          .size = size,
          .interpolation = options_.interpolation,
          .antialias = options_.antialias};
}

CenterCrop::CenterCrop(const CenterCropOptions& options)
    : size_(read_size("CenterCrop", options.size)) {}

Window CenterCrop::window(const ImageSize& image, Draw&) const {
  check_crop_fits("CenterCrop", size_, image);
  return cut_out(size_, round_as_python(static_cast<double>(image.height - size_.height) / 2),
                 round_as_python(static_cast<double>(image.width - size_.width) / 2));
}

RandomCrop::RandomCrop(const RandomCropOptions& options) : Compose(random_crop_steps(options)) {}

RandomResizedCrop::RandomResizedCrop(const RandomResizedCropOptions& options)
    : options_(options), size_(read_size("RandomResizedCrop", options.size)) {
  for (const auto& [field, values] :
       {std::pair{"scale", options.scale}, std::pair{"ratio", options.ratio}}) {
    if (read_range("RandomResizedCrop", field, values).low <= 0) {
      throw ConfigError("RandomResizedCrop: {}: expected positive numbers, got {} and {}", field,
                        values[0], values[1]);
    }
  }
}

Window RandomResizedCrop::window(const ImageSize& image, Draw& draw) const {
  const auto resized = [&](const ImageSize& part, std::int64_t top, std::int64_t left) {
    Window window = cut_out(part, top, left);
    window.size = size_;
    window.interpolation = options_.interpolation;
    window.antialias = options_.antialias;
    return window;
  };
  const auto& [scale, ratio] = std::tie(options_.scale, options_.ratio);
  const double area = static_cast<double>(image.height) * static_cast<double>(image.width);
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    const double part_area = area * draw.random.uniform(scale[0], scale[1]);
    const double shape = std::exp(draw.random.uniform(std::log(ratio[0]), std::log(ratio[1])));
    const ImageSize part{.height = round_as_python(std::sqrt(part_area / shape)),
                         .width = round_as_python(std::sqrt(part_area * shape))};
    if (part.height < 1 || part.height > image.height || part.width < 1 ||
        part.width > image.width) {
      continue;
    }
    const std::int64_t top = draw.random.below(image.height - part.height + 1);
    const std::int64_t left = draw.random.below(image.width - part.width + 1);
    return resized(part, top, left);
  }
  ImageSize part = image;
  const double shape = static_cast<double>(image.width) / static_cast<double>(image.height);
  if (shape < ratio[0]) {
    part.height = round_as_python(static_cast<double>(image.width) / ratio[0]);
  } else if (shape > ratio[1]) {
    part.width = round_as_python(static_cast<double>(image.height) * ratio[1]);
  }
  part.height = std::clamp<std::int64_t>(part.height, 1, image.height);
  part.width = std::clamp<std::int64_t>(part.width, 1, image.width);
  return resized(part, (image.height - part.height) / 2, (image.width - part.width) / 2);
}

}  // namespace lockstep::data
