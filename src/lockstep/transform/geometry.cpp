#include "lockstep/transform/geometry.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/ranges.h>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"
#include "lockstep/data/describe.h"
#include "lockstep/transform/options.h"

namespace lockstep::data {
namespace {

// An image as planes of pixels of some bytes: channels that come last belong to the pixel.
struct Pixels {
  const char* data = nullptr;
  std::int64_t planes = 1;
  ImageSize size;
  std::int64_t pixel_bytes = 1;

  std::int64_t row_bytes() const { return size.width * pixel_bytes; }
  std::int64_t plane_bytes() const { return size.height * row_bytes(); }
};

// `image` must be contiguous.
Pixels pixels_of(const torch::Tensor& image, const ImageLayout& layout) {
  return {.data = static_cast<const char*>(image.data_ptr()),
          .planes = layout.channels_first ? layout.channels : 1,
          .size = layout.size,
          .pixel_bytes = static_cast<std::int64_t>(image.element_size()) *
                         (layout.channels_first ? 1 : layout.channels)};
}

// Calls body(std::integral_constant) for the usual sizes of pixels, so that a copy of one is an
// instruction or two, and body(size) for others.
template <typename Body>
void with_pixel_bytes(std::int64_t bytes, const Body& body) {
  switch (bytes) {
    case 1:
      return body(std::integral_constant<std::size_t, 1>());
    case 3:
      return body(std::integral_constant<std::size_t, 3>());
    case 4:
      return body(std::integral_constant<std::size_t, 4>());
    case 8:
      return body(std::integral_constant<std::size_t, 8>());
    default:
      return body(static_cast<std::size_t>(bytes));
  }
}

constexpr std::int32_t kOutside = -1;

// Which pixel of the image each pixel of the result shows, row by row, or kOutside.
using Shown = std::vector<std::int32_t>;

std::int32_t shown_at(std::int64_t x, std::int64_t y, const ImageSize& image) {
  if (x < 0 || x >= image.width || y < 0 || y >= image.height) return kOutside;
  return static_cast<std::int32_t>(y * image.width + x);
}

// Rounds down, but far numbers stay in the range of an integer.
std::int64_t pixel_at(double coordinate) {
  constexpr double kFar = 1e15;
  return static_cast<std::int64_t>(std::floor(std::clamp(coordinate, -kFar, kFar)));
}

// The three ways in which Pillow finds nearest pixels. They differ in rounding only, but a pixel
// may differ.
void find_by_scale(const AffineMap& map, const ImageSize& image, const ImageSize& size,
                   Shown& shown) {
  double y = map.f + map.e * 0.5;
  for (std::int64_t row = 0; row < size.height; ++row, y += map.e) {
    double x = map.c + map.a * 0.5;
    for (std::int64_t column = 0; column < size.width; ++column, x += map.a) {
      shown.push_back(shown_at(pixel_at(x), pixel_at(y), image));
    }
  }
}

void find_by_fixed_point(const AffineMap& map, const ImageSize& image, const ImageSize& size,
                         Shown& shown) {
  const auto fixed = [](double value) { return pixel_at(value * 65536.0 + 0.5); };
  std::int64_t row_x = fixed(map.c + map.a * 0.5 + map.b * 0.5);
  std::int64_t row_y = fixed(map.f + map.d * 0.5 + map.e * 0.5);
  for (std::int64_t row = 0; row < size.height; ++row) {
    std::int64_t x = row_x;
    std::int64_t y = row_y;
    for (std::int64_t column = 0; column < size.width; ++column) {
      shown.push_back(shown_at(x >> 16, y >> 16, image));
      x += fixed(map.a);
      y += fixed(map.d);
    }
    row_x += fixed(map.b);
    row_y += fixed(map.e);
  }
}

void find_by_floating_point(const AffineMap& map, const ImageSize& image, const ImageSize& size,
                            Shown& shown) {
  double row_x = map.c + map.b * 0.5 + map.a * 0.5;
  double row_y = map.f + map.e * 0.5 + map.d * 0.5;
  for (std::int64_t row = 0; row < size.height; ++row) {
    double x = row_x;
    double y = row_y;
    for (std::int64_t column = 0; column < size.width; ++column) {
      shown.push_back(shown_at(pixel_at(x), pixel_at(y), image));
      x += map.a;
      y += map.d;
    }
    row_x += map.b;
    row_y += map.e;
  }
}

bool fits_fixed_point(const AffineMap& map, const ImageSize& size) {
  const auto fits = [&](double x, double y) {
    constexpr double kLimit = 32768;
    return std::abs(x * map.a + y * map.b + map.c) < kLimit &&
           std::abs(x * map.d + y * map.e + map.f) < kLimit;
  };
  const auto width = static_cast<double>(size.width);
  const auto height = static_cast<double>(size.height);
  return fits(0, 0) && fits(width, height) && fits(0, height) && fits(width, 0);
}

void warp_nearest(const Pixels& from, const AffineMap& map, const ImageSize& size, char* to) {
  thread_local Shown shown;
  shown.clear();
  if (map.b == 0 && map.d == 0) {
    find_by_scale(map, from.size, size, shown);
  } else if (fits_fixed_point(map, size)) {
    find_by_fixed_point(map, from.size, size, shown);
  } else {
    find_by_floating_point(map, from.size, size, shown);
  }
  with_pixel_bytes(from.pixel_bytes, [&](auto bytes) {
    const std::size_t each = bytes;
    for (std::int64_t plane = 0; plane < from.planes; ++plane) {
      const char* const source = from.data + plane * from.plane_bytes();
      for (const std::int32_t pixel : shown) {
        if (pixel != kOutside) {
          std::memcpy(to, source + static_cast<std::size_t>(pixel) * each, each);
        }
        to += each;
      }
    }
  });
}

// Distances between neighbours in elements.
struct Strides {
  std::int64_t x = 1;
  std::int64_t y = 1;
  std::int64_t channel = 1;
};

template <typename Scalar>
struct WarpedImage {
  const Scalar* data = nullptr;
  ImageSize size;
  std::int64_t channels = 1;
  Strides strides;
};

Strides strides_of(const ImageLayout& layout, const ImageSize& size) {
  if (layout.channels_first) {
    return {.x = 1, .y = size.width, .channel = size.height * size.width};
  }
  return {.x = layout.channels, .y = size.width * layout.channels, .channel = 1};
}

// In doubles, and bytes are rounded down, as in Pillow.
template <typename Scalar>
void warp_bilinear(const WarpedImage<Scalar>& from, const AffineMap& map, const ImageSize& size,
                   const Strides& to_strides, Scalar* to) {
  const auto& [height, width] = from.size;
  for (std::int64_t row = 0; row < size.height; ++row) {
    for (std::int64_t column = 0; column < size.width; ++column) {
      const double at_x = static_cast<double>(column) + 0.5;
      const double at_y = static_cast<double>(row) + 0.5;
      double x = map.a * at_x + map.b * at_y + map.c;
      double y = map.d * at_x + map.e * at_y + map.f;
      const bool inside =
          x >= 0 && x < static_cast<double>(width) && y >= 0 && y < static_cast<double>(height);
      if (!inside) continue;
      x -= 0.5;
      y -= 0.5;
      const auto left = static_cast<std::int64_t>(std::floor(x));
      const auto top = static_cast<std::int64_t>(std::floor(y));
      const double right_part = x - static_cast<double>(left);
      const double lower_part = y - static_cast<double>(top);
      const std::int64_t x0 = std::max<std::int64_t>(left, 0) * from.strides.x;
      const std::int64_t x1 = std::min(left + 1, width - 1) * from.strides.x;
      const std::int64_t y0 = std::max<std::int64_t>(top, 0) * from.strides.y;
      const std::int64_t y1 = std::min(top + 1, height - 1) * from.strides.y;
      for (std::int64_t c = 0; c < from.channels; ++c) {
        const Scalar* const plane = from.data + c * from.strides.channel;
        const auto between = [&](std::int64_t in_row) {
          const double a = plane[in_row + x0];
          const double b = plane[in_row + x1];
          return a + (b - a) * right_part;
        };
        const double upper = between(y0);
        const double lower = between(y1);
        to[row * to_strides.y + column * to_strides.x + c * to_strides.channel] =
            static_cast<Scalar>(upper + (lower - upper) * lower_part);
      }
    }
  }
}

std::vector<std::int64_t> shape_with(const torch::Tensor& image, const ImageLayout& layout,
                                     const ImageSize& size) {
  std::vector<std::int64_t> shape = image.sizes().vec();
  shape[static_cast<std::size_t>(layout.row_dim())] = size.height;
  shape[static_cast<std::size_t>(layout.column_dim())] = size.width;
  return shape;
}

double radians(double degrees) {
  return degrees * (std::numbers::pi / 180);
}

Point middle_of(const ImageSize& size) {
  return {.x = static_cast<double>(size.width) * 0.5, .y = static_cast<double>(size.height) * 0.5};
}

Point apply_map(const AffineMap& map, const Point& point) {
  return {.x = map.a * point.x + map.b * point.y + map.c,
          .y = map.d * point.x + map.e * point.y + map.f};
}

// From the result back to the image: the inverse of a shear, a scaling and a rotation around the
// center, and of the translation.
AffineMap inverse_map(const AffineParameters& parameters, const Point& center) {
  const double rotation = radians(parameters.angle);
  const double shear_x = radians(parameters.shear.x);
  const double shear_y = radians(parameters.shear.y);
  const double a = std::cos(rotation - shear_y) / std::cos(shear_y);
  const double b =
      -std::cos(rotation - shear_y) * std::tan(shear_x) / std::cos(shear_y) - std::sin(rotation);
  const double c = std::sin(rotation - shear_y) / std::cos(shear_y);
  const double d =
      -std::sin(rotation - shear_y) * std::tan(shear_x) / std::cos(shear_y) + std::cos(rotation);
  const double scale = parameters.scale;
  AffineMap map{.a = d / scale, .b = -b / scale, .c = 0, .d = -c / scale, .e = a / scale, .f = 0};
  const Point moved = apply_map(
      map, {.x = -center.x - parameters.translate.x, .y = -center.y - parameters.translate.y});
  map.c = moved.x + center.x;
  map.f = moved.y + center.y;
  return map;
}

// A multiple of 90 degrees is a mere exchange of rows and columns.
std::optional<torch::Tensor> quarter_turns(const torch::Tensor& image, const ImageLayout& layout,
                                           double angle, bool expand) {
  const bool square = layout.size.height == layout.size.width;
  if (angle == 0) return image;
  if (angle != 180 && !((angle == 90 || angle == 270) && (expand || square))) return std::nullopt;
  return torch::rot90(image, static_cast<std::int64_t>(angle / 90),
                      {layout.row_dim(), layout.column_dim()})
      .contiguous();
}

WarpOptions warp_options(Interpolation interpolation, const std::vector<double>& fill,
                         const Draw& draw) {
  if (draw.is_mask) return {.interpolation = Interpolation::kNearest, .fill = {0}};
  return {.interpolation = interpolation, .fill = fill};
}

}  // namespace

void check_warp(std::string_view owner, const WarpOptions& options) {
  if (options.interpolation == Interpolation::kBicubic) {
    throw ConfigError("{}: interpolation: expected nearest or bilinear, got bicubic", owner);
  }
  if (options.fill.empty()) {
    throw ConfigError("{}: fill: expected at least one value, got none", owner);
  }
}

torch::Tensor horizontal_flip(const torch::Tensor& image) {
  const ImageLayout layout = layout_of(image, "horizontal flip");
  check_on_cpu(image, "horizontal flip");
  const torch::Tensor packed = image.contiguous();
  torch::Tensor result = torch::empty_like(packed);
  const Pixels from = pixels_of(packed, layout);
  auto* to = static_cast<char*>(result.data_ptr());
  with_pixel_bytes(from.pixel_bytes, [&](auto bytes) {
    const std::size_t each = bytes;
    for (std::int64_t row = 0; row < from.planes * from.size.height; ++row) {
      const char* source = from.data + row * from.row_bytes();
      char* end = to + (row + 1) * from.row_bytes();
      for (std::int64_t x = 0; x < from.size.width; ++x) {
        end -= each;
        std::memcpy(end, source, each);
        source += each;
      }
    }
  });
  return result;
}

torch::Tensor vertical_flip(const torch::Tensor& image) {
  return image.flip({layout_of(image, "vertical flip").row_dim()});
}

torch::Tensor warp(const torch::Tensor& image, const AffineMap& map, const ImageSize& size,
                   const WarpOptions& options) {
  const ImageLayout layout = layout_of(image, "affine map");
  check_on_cpu(image, "affine map");
  check_warp("affine map", options);
  if (image.numel() > std::numeric_limits<std::int32_t>::max()) {
    throw DataError("affine map: expected an image of at most 2^31 values, got {}",
                    describe(image));
  }
  const torch::Tensor packed = image.contiguous();
  torch::Tensor result = filled_image(shape_with(image, layout, size), image, options.fill, "fill");
  if (options.interpolation == Interpolation::kNearest) {
    warp_nearest(pixels_of(packed, layout), map, size, static_cast<char*>(result.data_ptr()));
    return result;
  }
  const auto bilinear = [&]<typename Scalar>(const torch::Tensor& from, torch::Tensor& to, Scalar) {
    warp_bilinear<Scalar>({.data = from.data_ptr<Scalar>(),
                           .size = layout.size,
                           .channels = layout.channels,
                           .strides = strides_of(layout, layout.size)},
                          map, size, strides_of(layout, size), to.data_ptr<Scalar>());
  };
  if (image.scalar_type() == torch::kUInt8) {
    bilinear(packed, result, std::uint8_t());
    return result;
  }
  if (!image.is_floating_point()) {
    throw DataError("affine map: expected bytes or floats for bilinear, got {}", describe(image));
  }
  result = result.to(torch::kFloat32);
  bilinear(packed.to(torch::kFloat32), result, float());
  return result.to(image.scalar_type());
}

torch::Tensor affine(const torch::Tensor& image, const AffineParameters& parameters,
                     const WarpOptions& options) {
  const ImageSize size = image_size(image);
  const Point center = parameters.center.value_or(middle_of(size));
  return warp(image, inverse_map(parameters, center), size, options);
}

torch::Tensor rotate(const torch::Tensor& image, const RotateParameters& parameters,
                     const WarpOptions& options) {
  const ImageLayout layout = layout_of(image, "rotate");
  const double angle = parameters.angle - 360 * std::floor(parameters.angle / 360);
  if (const auto turned = quarter_turns(image, layout, angle, parameters.expand)) return *turned;

  // Without this, a sine that should be zero moves pixels that lie on an edge.
  const auto rounded = [](double value) { return std::nearbyint(value * 1e15) / 1e15; };
  const double cosine = rounded(std::cos(-radians(angle)));
  const double sine = rounded(std::sin(-radians(angle)));
  AffineMap map{.a = cosine, .b = sine, .c = 0, .d = -sine, .e = cosine, .f = 0};
  const Point center = middle_of(layout.size);
  const Point moved = apply_map(map, {.x = -center.x, .y = -center.y});
  map.c = moved.x + center.x;
  map.f = moved.y + center.y;
  if (!parameters.expand) return warp(image, map, layout.size, options);

  const auto width = static_cast<double>(layout.size.width);
  const auto height = static_cast<double>(layout.size.height);
  Point low = apply_map(map, {});
  Point high = low;
  for (const Point& corner :
       {Point{.x = width, .y = 0}, Point{.x = width, .y = height}, Point{.x = 0, .y = height}}) {
    const Point at = apply_map(map, corner);
    low = {.x = std::min(low.x, at.x), .y = std::min(low.y, at.y)};
    high = {.x = std::max(high.x, at.x), .y = std::max(high.y, at.y)};
  }
  const double new_width = std::ceil(high.x) - std::floor(low.x);
  const double new_height = std::ceil(high.y) - std::floor(low.y);
  const Point shift =
      apply_map(map, {.x = -(new_width - width) / 2, .y = -(new_height - height) / 2});
  map.c = shift.x;
  map.f = shift.y;
  return warp(image, map,
              {.height = static_cast<std::int64_t>(new_height),
               .width = static_cast<std::int64_t>(new_width)},
              options);
}

RandomHorizontalFlip::RandomHorizontalFlip(const FlipOptions& options) : options_(options) {
  check_probability("RandomHorizontalFlip", options.probability);
}

torch::Tensor RandomHorizontalFlip::apply(const torch::Tensor& sample, Draw& draw) const {
  return draw.random.chance(options_.probability) ? horizontal_flip(sample) : sample;
}

RandomVerticalFlip::RandomVerticalFlip(const FlipOptions& options) : options_(options) {
  check_probability("RandomVerticalFlip", options.probability);
}

torch::Tensor RandomVerticalFlip::apply(const torch::Tensor& sample, Draw& draw) const {
  return draw.random.chance(options_.probability) ? vertical_flip(sample) : sample;
}

RandomRotation::RandomRotation(RandomRotationOptions options) : options_(std::move(options)) {
  check_warp("RandomRotation", {.interpolation = options_.interpolation, .fill = options_.fill});
  const Range degrees = read_range_around("RandomRotation", "degrees", options_.degrees, 0);
  options_.degrees = {degrees.low, degrees.high};
}

torch::Tensor RandomRotation::apply(const torch::Tensor& sample, Draw& draw) const {
  const double angle = draw.random.uniform(options_.degrees[0], options_.degrees[1]);
  return rotate(sample, {.angle = angle, .expand = options_.expand},
                warp_options(options_.interpolation, options_.fill, draw));
}

RandomAffine::RandomAffine(RandomAffineOptions options) : options_(std::move(options)) {
  constexpr std::string_view kOwner = "RandomAffine";
  check_warp(kOwner, {.interpolation = options_.interpolation, .fill = options_.fill});
  const Range degrees = read_range_around(kOwner, "degrees", options_.degrees, 0);
  options_.degrees = {degrees.low, degrees.high};
  const Check check{std::string(kOwner)};
  if (!options_.translate.empty()) {
    check.require(options_.translate.size() == 2, "translate", "{most x, most y}",
                  fmt::format("{}", options_.translate));
    for (const double part : options_.translate) check.fraction("translate", part);
  }
  if (!options_.scale.empty()) {
    check.positive("scale", read_range(kOwner, "scale", options_.scale).low);
  }
  std::vector<double>& shear = options_.shear;
  if (shear.size() == 4) {
    read_range(kOwner, "shear", {shear[0], shear[1]});
    read_range(kOwner, "shear", {shear[2], shear[3]});
  } else if (!shear.empty()) {
    const Range along_x = read_range_around(kOwner, "shear", shear, 0);
    shear = {along_x.low, along_x.high};
  }
}

AffineParameters RandomAffine::parameters(const ImageSize& image, SampleRandom& random) const {
  const auto& [degrees, translate, scale, shear, interpolation, fill] = options_;
  AffineParameters drawn{.angle = random.uniform(degrees[0], degrees[1])};
  if (!translate.empty()) {
    const double most_x = translate[0] * static_cast<double>(image.width);
    const double most_y = translate[1] * static_cast<double>(image.height);
    drawn.translate.x = std::nearbyint(random.uniform(-most_x, most_x));
    drawn.translate.y = std::nearbyint(random.uniform(-most_y, most_y));
  }
  if (!scale.empty()) drawn.scale = random.uniform(scale[0], scale[1]);
  if (!shear.empty()) drawn.shear.x = random.uniform(shear[0], shear[1]);
  if (shear.size() == 4) drawn.shear.y = random.uniform(shear[2], shear[3]);
  return drawn;
}

torch::Tensor RandomAffine::apply(const torch::Tensor& sample, Draw& draw) const {
  const AffineParameters drawn = parameters(image_size(sample), draw.random);
  return affine(sample, drawn, warp_options(options_.interpolation, options_.fill, draw));
}

}  // namespace lockstep::data
