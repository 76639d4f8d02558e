// The area under one ROC curve.
#pragma once

#include <vector>

namespace lockstep::metric {

// The chance that a positive sample scores higher than a negative one, a tie counting half: the
// trapezoids under the ROC curve. It is one division of two integers, so the order of the scores
// does not matter to the bit. NaN where either is empty; no score may be NaN. O(n).
double roc_area(const std::vector<float>& positives, const std::vector<float>& negatives);

}  // namespace lockstep::metric
