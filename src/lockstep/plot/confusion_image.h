// Draws a confusion matrix as an image.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plot/image.h"

namespace lockstep::plot {

struct ConfusionPicture {
  std::vector<std::string> class_names = {};  // one per class, in the order of rows and columns
  std::vector<double> cells = {};  // row-major: row = true class, column = predicted class
  bool normalized = false;         // cells are shares of 1, shown with two decimals
};

// Draws cells from light to dark blue with their values, class names on both axes, and a colour
// scale. The more classes there are, the smaller the cells, and text that does not fit is left out.
// From 40 classes on there are only colours. Throws ConfigError if there is no class, or if the
// number of cells is not classes².
Image draw_confusion_matrix(const ConfusionPicture& picture);

}  // namespace lockstep::plot
