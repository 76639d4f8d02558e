#include "lockstep/image/pixels.h"

#include <array>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/transform/luma.h"

namespace lockstep::data {
namespace {

std::int64_t opaque(const torch::Tensor& pixels) {
  return pixels.scalar_type() == torch::kUInt8 ? 0xff : 0xffff;
}

template <typename Value>
torch::Tensor rgb_to_grey(const torch::Tensor& rgb) {
  const torch::Tensor packed = rgb.contiguous();
  torch::Tensor grey = torch::empty({rgb.size(0), rgb.size(1), 1}, rgb.options());
  const Value* const from = packed.data_ptr<Value>();
  Value* const to = grey.data_ptr<Value>();
  for (std::int64_t i = 0; i < grey.numel(); ++i) to[i] = static_cast<Value>(luma(from + 3 * i));
  return grey;
}

torch::Tensor rgb_to_grey(const torch::Tensor& rgb) {
  return rgb.scalar_type() == torch::kUInt8 ? rgb_to_grey<std::uint8_t>(rgb)
                                            : rgb_to_grey<std::int32_t>(rgb);
}

// a * b / 255, rounded.
int multiply(int a, int b) {
  const int product = a * b + 128;
  return ((product >> 8) + product) >> 8;
}

}  // namespace

Turn turn_of(int orientation) {
  static constexpr std::array<Turn, 8> kTurns = {
      {{},
       {.reverse_columns = true},
       {.reverse_rows = true, .reverse_columns = true},
       {.reverse_rows = true},
       {.transpose = true},
       {.transpose = true, .reverse_columns = true},
       {.transpose = true, .reverse_rows = true, .reverse_columns = true},
       {.transpose = true, .reverse_rows = true}}};
  return kTurns.at(static_cast<std::size_t>(orientation - 1));
}

torch::Tensor upright(const torch::Tensor& pixels, int orientation) {
  const Turn turn = turn_of(orientation);
  torch::Tensor result = turn.transpose ? pixels.transpose(0, 1) : pixels;
  std::vector<std::int64_t> reversed;
  if (turn.reverse_rows) reversed.push_back(0);
  if (turn.reverse_columns) reversed.push_back(1);
  if (!reversed.empty()) result = result.flip(reversed);
  return result.contiguous();
}

ImageSize upright(const ImageSize& stored, int orientation) {
  if (!turn_of(orientation).transpose) return stored;
  return {.height = stored.width, .width = stored.height};
}

Box upright(const Box& box, const ImageSize& stored, int orientation) {
  const Turn turn = turn_of(orientation);
  const ImageSize size = upright(stored, orientation);
  Box result = box;
  if (turn.transpose) {
    std::swap(result.top, result.left);
    std::swap(result.height, result.width);
  }
  if (turn.reverse_rows) {
    result.top = static_cast<double>(size.height) - result.top - result.height;
  }
  if (turn.reverse_columns) {
    result.left = static_cast<double>(size.width) - result.left - result.width;
  }
  return result;
}

Box as_stored(const Box& box, const ImageSize& stored, int orientation) {
  const Turn turn = turn_of(orientation);
  const ImageSize size = upright(stored, orientation);
  Box result = box;
  if (turn.reverse_rows) {
    result.top = static_cast<double>(size.height) - result.top - result.height;
  }
  if (turn.reverse_columns) {
    result.left = static_cast<double>(size.width) - result.left - result.width;
  }
  if (turn.transpose) {
    std::swap(result.top, result.left);
    std::swap(result.height, result.width);
  }
  return result;
}

torch::Tensor to_channels(const torch::Tensor& pixels, Channels channels) {
  const std::int64_t stored = pixels.size(2);
  if (stored < 1 || stored > 4) {
    throw DataError("expected an image of 1 to 4 channels, got {}", stored);
  }
  if (channels == Channels::kStored) return pixels;
  const bool has_alpha = stored == 2 || stored == 4;
  const bool is_grey = stored <= 2;
  const torch::Tensor colors = has_alpha ? pixels.narrow(2, 0, stored - 1) : pixels;
  if (channels == Channels::kGrey) {
    return is_grey ? colors.contiguous() : rgb_to_grey(colors);
  }
  const torch::Tensor rgb = is_grey ? colors.expand({-1, -1, 3}) : colors;
  if (channels == Channels::kRgb) return rgb.contiguous();
  const torch::Tensor alpha = has_alpha ? pixels.narrow(2, stored - 1, 1)
                                        : torch::full_like(pixels.narrow(2, 0, 1), opaque(pixels));
  return torch::cat({rgb, alpha}, 2);
}

torch::Tensor to_floats(const torch::Tensor& pixels) {
  return pixels.permute({2, 0, 1})
      .to(torch::kFloat32)
      .contiguous()
      .div_(static_cast<double>(opaque(pixels)));
}

torch::Tensor inverted_cmyk_to_rgb(const torch::Tensor& pixels) {
  const torch::Tensor cmyk = pixels.contiguous();
  torch::Tensor rgb = torch::empty({cmyk.size(0), cmyk.size(1), 3}, torch::kUInt8);
  const std::uint8_t* from = cmyk.data_ptr<std::uint8_t>();
  std::uint8_t* to = rgb.data_ptr<std::uint8_t>();
  for (std::int64_t pixel = cmyk.size(0) * cmyk.size(1); pixel > 0; --pixel, from += 4, to += 3) {
    const int white = from[3];  // the light that black ink leaves
    for (int c = 0; c < 3; ++c) {
      to[c] = static_cast<std::uint8_t>(white - multiply(255 - from[c], white));
    }
  }
  return rgb;
}

torch::Tensor from_16_bits(const torch::Tensor& int16_pixels) {
  return int16_pixels.to(torch::kInt32).bitwise_and_(0xffff);
}

}  // namespace lockstep::data
