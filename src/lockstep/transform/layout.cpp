#include "lockstep/transform/layout.h"

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/transform.h"
#include "lockstep/transform/options.h"

namespace lockstep::data {

ImageLayout layout_of(const torch::Tensor& image, std::string_view owner) {
  const bool floats = image.is_floating_point();
  if ((image.dim() != 2 && image.dim() != 3) || image.numel() == 0) {
    throw DataError("{}: expected an image, bytes [H, W] or [H, W, C] or floats [C, H, W], got {}",
                    owner, describe(image));
  }
  if (image.dim() == 2) return {.size = {image.size(0), image.size(1)}};
  if (floats) {
    return {
        .size = {image.size(1), image.size(2)}, .channels = image.size(0), .channels_first = true};
  }
  if (looks_channels_first(image.sizes())) {
    throw DataError(
        "{}: expected integers with channels last, [H, W, C], got {}, which looks like [C, H, W]; "
        "permute the data to channels last (tensor.permute({{1, 2, 0}}))",
        owner, describe(image));
  }
  return {.size = {image.size(0), image.size(1)}, .channels = image.size(2)};
}

torch::Tensor filled_image(torch::IntArrayRef shape, const torch::Tensor& like,
                           const std::vector<double>& fill, std::string_view owner) {
  if (fill.size() == 1) return torch::full(shape, fill[0], like.options());
  const ImageLayout layout = layout_of(like, owner);
  const torch::Tensor colour =
      torch::tensor(per_channel(owner, fill, layout.channels)).to(like.scalar_type());
  const torch::Tensor broadcast = layout.channels_first ? colour.view({-1, 1, 1}) : colour;
  return broadcast.expand(shape).contiguous();
}

ImageSize image_size(const torch::Tensor& image) {
  return layout_of(image, "image").size;
}

}  // namespace lockstep::data
