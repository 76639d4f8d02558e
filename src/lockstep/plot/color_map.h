// Numbers as colours that everybody can tell apart.
#pragma once

#include <vector>

#include "lockstep/plot/image.h"

namespace lockstep::plot {

enum class ColorMap {
  kSequential,  // dark blue over green to yellow: more is lighter
  kDiverging,   // blue over white to red: below, at and above the middle
};

// Of a part in [0, 1]; what lies beyond is taken for its end, and NaN for grey.
Color color_of(ColorMap map, double part);

// Values row by row as a picture, one pixel each; `low` to `high` is the range of colours.
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
