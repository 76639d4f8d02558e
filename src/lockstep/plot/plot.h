// Plots as SVG: lines over linear or logarithmic axes, and fields as colours, side by side.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "lockstep/plot/color_map.h"

namespace lockstep::plot {

struct Line {
  std::string label;  // in the legend; if empty, the line is not in the legend
  std::vector<double> x;
  std::vector<double> y;
  bool dashed = false;
};

struct LinePlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Line> lines;
  bool log_x = false;  // values that are not positive are then left out
  bool log_y = false;
};

// A two-dimensional field as colours, with a scale of the colours.
struct FieldPlot {
  std::string title;
  Raster raster;
  std::string x_label = "x";
  std::string y_label = "y";
};

using Plot = std::variant<LinePlot, FieldPlot>;

// A complete SVG document with the plots from left to right.
std::string to_svg(const std::vector<Plot>& plots);

// Round numbers in the range, which an axis shows.
std::vector<double> linear_ticks(double low, double high);
std::vector<double> log_ticks(double low, double high);

// Labels such as 0.25, 1e-05, 12000, with enough digits to tell neighbouring ticks apart.
std::vector<std::string> tick_labels(const std::vector<double>& ticks);

}  // namespace lockstep::plot
