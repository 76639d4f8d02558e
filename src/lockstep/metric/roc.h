// The area under one ROC curve.
#pragma once

#include <vector>

namespace lockstep::metric {

// The probability that a positive sample has a higher score than a negative one; a tie counts half.
// This is the area of the trapezoids under the ROC curve. It is one division of two integers, so
// the order of the scores does not change a bit of it. NaN if there are no positives or no
// negatives; no score may be NaN. O(n).
double roc_area(const std::vector<float>& positives, const std::vector<float>& negatives);

}  // namespace lockstep::metric
