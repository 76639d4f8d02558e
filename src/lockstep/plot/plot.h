// Plots as SVG: lines over linear or logarithmic axes, and fields as colours, side by side.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "lockstep/plot/color_map.h"

namespace lockstep::plot {

struct Line {
  std::string label;  // in the legend; "": not there
  std::vector<double> x;
  std::vector<double> y;
  bool dashed = false;
};

struct LinePlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Line> lines;
  bool log_x = false;  // what is not positive is then left out
  bool log_y = false;
};

// A field seen from above, with a scale of its colours.
struct FieldPlot {
  std::string title;
  Raster raster;
  std::string x_label = "x";
  std::string y_label = "y";
};

using Plot = std::variant<LinePlot, FieldPlot>;

// A whole SVG document, the plots from left to right.
std::string to_svg(const std::vector<Plot>& plots);

// Round numbers that divide the range: what an axis shows.
std::vector<double> linear_ticks(double low, double high);
std::vector<double> log_ticks(double low, double high);

// 0.25, 1e-05, 12000: with as many digits as tell them apart.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

}  // namespace lockstep::plot
