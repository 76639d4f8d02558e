#include "lockstep/transform/pad.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/layout.h"
#include "lockstep/transform/options.h"

namespace lockstep::data {
namespace {

Padding read_padding(const std::vector<std::int64_t>& sides) {
  const bool allowed = std::ranges::all_of(sides, [](std::int64_t side) { return side >= 0; });
  if ((sides.size() != 1 && sides.size() != 2 && sides.size() != 4) || !allowed) {
    throw ConfigError(
        "Pad: padding: expected {{all}}, {{left and right, top and bottom}} or {{left, top, right, "
        "bottom}}, none negative, got {}",
        sides);
  }
  const std::size_t last = sides.size() - 1;
  return {.left = sides[0],
          .top = sides[std::min<std::size_t>(1, last)],
          .right = sides[std::min<std::size_t>(2, last == 1 ? 0 : last)],
          .bottom = sides[std::min<std::size_t>(3, last)]};
}

// For each pixel of the padded axis, the pixel of the image that it shows.
torch::Tensor shown_pixels(std::int64_t before, std::int64_t size, std::int64_t after,
                           PaddingMode mode) {
  std::vector<std::int64_t> pixels;
  pixels.reserve(static_cast<std::size_t>(before + size + after));
  for (std::int64_t i = -before; i < size + after; ++i) {
    if (mode == PaddingMode::kEdge) {
      pixels.push_back(std::clamp<std::int64_t>(i, 0, size - 1));
    } else {
      const std::int64_t edge = mode == PaddingMode::kSymmetric ? 1 : 0;
      pixels.push_back(i < 0 ? -i - edge : i < size ? i : 2 * size - 2 - i + edge);
    }
  }
  return torch::tensor(pixels, torch::kInt64);
}

void check_mirror(const torch::Tensor& image, const ImageSize& size, const Padding& padding,
                  PaddingMode mode) {
  const std::int64_t edge = mode == PaddingMode::kReflect ? 1 : 0;
  if (std::max(padding.left, padding.right) <= size.width - edge &&
      std::max(padding.top, padding.bottom) <= size.height - edge) {
    return;
  }
  throw DataError(
      "Pad: expected at most {} pixels above and below and {} at the sides, because the image is "
      "mirrored, got {}, {}, {}, {} (left, top, right, bottom) for {}",
      size.height - edge, size.width - edge, padding.left, padding.top, padding.right,
      padding.bottom, describe(image));
}

}  // namespace

torch::Tensor pad_image(const torch::Tensor& image, const Padding& padding,
                        const std::vector<double>& fill, PaddingMode mode) {
  const ImageLayout layout = layout_of(image, "Pad");
  const auto& [height, width] = layout.size;
  if (mode != PaddingMode::kConstant) {
    if (mode != PaddingMode::kEdge) check_mirror(image, layout.size, padding, mode);
    const torch::Tensor rows = shown_pixels(padding.top, height, padding.bottom, mode);
    const torch::Tensor columns = shown_pixels(padding.left, width, padding.right, mode);
    return image.index_select(layout.row_dim(), rows.to(image.device()))
        .index_select(layout.column_dim(), columns.to(image.device()));
  }
  std::vector<std::int64_t> shape = image.sizes().vec();
  shape[static_cast<std::size_t>(layout.row_dim())] += padding.top + padding.bottom;
  shape[static_cast<std::size_t>(layout.column_dim())] += padding.left + padding.right;
  torch::Tensor result = filled_image(shape, image, fill, "Pad: fill");
  result.narrow(layout.row_dim(), padding.top, height)
      .narrow(layout.column_dim(), padding.left, width)
      .copy_(image);
  return result;
}

Pad::Pad(ImagePadOptions options)
    : options_(std::move(options)), padding_(read_padding(options_.padding)) {
  if (options_.fill.empty()) throw ConfigError("Pad: fill: expected at least one value, got none");
}

torch::Tensor Pad::apply(const torch::Tensor& sample, Draw& draw) const {
  return pad_image(sample, padding_, draw.is_mask ? std::vector<double>{0} : options_.fill,
                   options_.padding_mode);
}

}  // namespace lockstep::data
