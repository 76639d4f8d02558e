// How the values of an image lie in its tensor.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <torch/types.h>

namespace lockstep::data {

struct ImageSize {
  std::int64_t height = 0;
  std::int64_t width = 0;

  bool operator==(const ImageSize&) const = default;
};

struct ImageLayout {
  ImageSize size;
  std::int64_t channels = 1;
  bool channels_first = false;  // [C, H, W]; otherwise [H, W, C] or [H, W]

  std::int64_t row_dim() const { return channels_first ? 1 : 0; }
  std::int64_t column_dim() const { return row_dim() + 1; }
};

// Floats are [C, H, W] or [H, W], all other types are [H, W, C] or [H, W]. Throws DataError, which
// begins with `owner`, if the tensor cannot be an image or its channels seem to be in another
// place.
ImageLayout layout_of(const torch::Tensor& image, std::string_view owner);

// The same for a batch of images, [B, ...]: the layout of each of them.
ImageLayout layout_of_batch(const torch::Tensor& images, std::string_view owner);

// Throws DataError, which begins with `owner`, if the image is not in the memory of the CPU. For
// functions that read its values themselves.
void check_on_cpu(const torch::Tensor& image, std::string_view owner);

// A new image of this shape, in the type and layout of `like`, and on its device. Each channel has
// its value of `fill`, or the only one. Throws DataError, which begins with `owner`, if `fill` has
// another number of values, or one that is not a byte for an image of bytes.
torch::Tensor filled_image(torch::IntArrayRef shape, const torch::Tensor& like,
                           const std::vector<double>& fill, std::string_view owner);

// Its height and width. Throws as layout_of().
ImageSize image_size(const torch::Tensor& image);

}  // namespace lockstep::data
