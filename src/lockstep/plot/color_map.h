// Shows numbers as colours, which colour-blind people can tell apart, too.
#pragma once

#include <vector>

#include "lockstep/plot/image.h"

namespace lockstep::plot {

enum class ColorMap {
  kSequential,  // dark blue over green to yellow: larger is lighter
  kDiverging,   // blue over white to red: below, at and above the middle
};

// The colour of a part in [0, 1]. Other parts have the colour of the nearer end, and NaN is grey.
Color color_of(ColorMap map, double part);

// Values of an image, row by row, one pixel each. The colours range from `low` to `high`.
struct Raster {
  int width = 0;
  int height = 0;
  std::vector<double> values;
  double low = 0;
  double high = 1;
  ColorMap map = ColorMap::kSequential;
};
Image to_image(const Raster& raster);

}  // namespace lockstep::plot
