#include "lockstep/transform/layout.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/transform.h"
#include "lockstep/transform/options.h"

namespace lockstep::data {
namespace {

// The layout of images with these sizes, two or three. `given` is the tensor, for messages.
ImageLayout layout_of_sizes(torch::IntArrayRef sizes, const torch::Tensor& given,
                            std::string_view owner) {
  if (sizes.size() == 2) return {.size = {sizes[0], sizes[1]}};
  if (given.is_floating_point()) {
    if (looks_channels_last(sizes)) {
      throw DataError(
          "{}: expected floats with channels first, [C, H, W], got {}, which looks like "
          "[H, W, C]; put a ToTensor before it, or permute the data to channels first "
          "(tensor.movedim(-1, -3))",
          owner, describe(given));
    }
    return {.size = {sizes[1], sizes[2]}, .channels = sizes[0], .channels_first = true};
  }
  if (looks_channels_first(sizes)) {
    throw DataError(
        "{}: expected integers with channels last, [H, W, C], got {}, which looks like [C, H, W]; "
        "permute the data to channels last (tensor.movedim(-3, -1))",
        owner, describe(given));
  }
  return {.size = {sizes[0], sizes[1]}, .channels = sizes[2]};
}

}  // namespace

ImageLayout layout_of(const torch::Tensor& image, std::string_view owner) {
  if ((image.dim() != 2 && image.dim() != 3) || image.numel() == 0) {
    throw DataError("{}: expected an image, bytes [H, W] or [H, W, C] or floats [C, H, W], got {}",
                    owner, describe(image));
  }
  return layout_of_sizes(image.sizes(), image, owner);
}

ImageLayout layout_of_batch(const torch::Tensor& images, std::string_view owner) {
  if (images.dim() != 3 && images.dim() != 4) {
    throw DataError(
        "{}: expected images, bytes [B, H, W] or [B, H, W, C] or floats [B, C, H, W], got {}",
        owner, describe(images));
  }
  return layout_of_sizes(images.sizes().slice(1), images, owner);
}

void check_on_cpu(const torch::Tensor& image, std::string_view owner) {
  if (image.device().is_cpu()) return;
  throw DataError(
      "{}: expected an image in the memory of the CPU, got {} on {}; move it with .cpu()", owner,
      describe(image), image.device().str());
}

torch::Tensor filled_image(torch::IntArrayRef shape, const torch::Tensor& like,
                           const std::vector<double>& fill, std::string_view owner) {
  const auto is_byte = [](double value) { return value >= 0 && value <= 255; };
  if (like.scalar_type() == torch::kUInt8 && !std::ranges::all_of(fill, is_byte)) {
    throw DataError("{}: expected values from 0 to 255, because the image is bytes, got {}", owner,
                    fill);
  }
  if (fill.size() == 1) return torch::full(shape, fill[0], like.options());
  const ImageLayout layout = layout_of(like, owner);
  const torch::Tensor colour =
      torch::tensor(per_channel(owner, fill, layout.channels)).to(like.options());
  const torch::Tensor broadcast = layout.channels_first ? colour.view({-1, 1, 1}) : colour;
  return broadcast.expand(shape).contiguous();
}

ImageSize image_size(const torch::Tensor& image) {
  return layout_of(image, "image").size;
}

}  // namespace lockstep::data
