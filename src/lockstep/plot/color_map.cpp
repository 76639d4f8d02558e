#include "lockstep/plot/color_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep::plot {
namespace {

// Evenly spaced points of matplotlib's viridis, and of a blue-white-red scale.
constexpr std::array<Color, 9> kSequentialPoints = {{{68, 1, 84},
                                                     {72, 40, 120},
                                                     {62, 74, 137},
                                                     {49, 104, 142},
                                                     {38, 130, 142},
                                                     {31, 158, 137},
                                                     {53, 183, 121},
                                                     {143, 215, 68},
                                                     {253, 231, 37}}};
constexpr std::array<Color, 7> kDivergingPoints = {{{33, 102, 172},
                                                    {103, 169, 207},
                                                    {209, 229, 240},
                                                    {247, 247, 247},
                                                    {253, 219, 199},
                                                    {239, 138, 98},
                                                    {178, 24, 43}}};
constexpr Color kGrey = {160, 160, 160};

Color between(std::span<const Color> points, double part) {
  const double place = std::clamp(part, 0.0, 1.0) * static_cast<double>(points.size() - 1);
  const auto first = std::min(static_cast<std::size_t>(place), points.size() - 2);
  const double rest = place - static_cast<double>(first);
  const auto mix = [&](std::uint8_t a, std::uint8_t b) {
    return static_cast<std::uint8_t>(std::lround(a + rest * (static_cast<double>(b) - a)));
  };
  const Color &a = points[first], &b = points[first + 1];
  return {mix(a.red, b.red), mix(a.green, b.green), mix(a.blue, b.blue)};
}

}  // namespace

Color color_of(ColorMap map, double part) {
  if (std::isnan(part)) return kGrey;
  return map == ColorMap::kSequential ? between(kSequentialPoints, part)
                                      : between(kDivergingPoints, part);
}

Image to_image(const Raster& raster) {
  Image image = make_image({.width = raster.width, .height = raster.height}, kGrey);
  const double range = raster.high > raster.low ? raster.high - raster.low : 1.0;
  for (int y = 0; y < raster.height; ++y) {
    for (int x = 0; x < raster.width; ++x) {
      const double value = raster.values.at(static_cast<std::size_t>(y * raster.width + x));
      set_pixel(image, x, y, color_of(raster.map, (value - raster.low) / range));
    }
  }
  return image;
}

}  // namespace lockstep::plot
