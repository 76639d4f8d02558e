// A confusion matrix as a picture to look at.
#pragma once

#include <string>
#include <vector>

#include "lockstep/plot/image.h"

namespace lockstep::plot {

struct ConfusionPicture {
  std::vector<std::string> class_names = {};  // one a class, in the order of rows and columns
  std::vector<double> cells = {};  // row-major: row = true class, column = predicted class
  bool normalized = false;         // cells are shares of 1, shown with two decimals
};

// Cells from light to dark blue with their values, class names on both axes, a scale beside them.
// Cells shrink as classes grow in number, and text that no longer fits is left out: from 40 classes
// on only the colours remain. Throws ConfigError where there is no class, or cells are not
// classes².
Image draw_confusion_matrix(const ConfusionPicture& picture);

}  // namespace lockstep::plot
