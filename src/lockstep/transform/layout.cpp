#include "lockstep/transform/layout.h"

#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/data/transform.h"

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

ImageSize image_size(const torch::Tensor& image) {
  return layout_of(image, "image").size;
}

}  // namespace lockstep::data
