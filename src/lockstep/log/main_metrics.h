// Chooses the metrics of a loader that matter most, for a line that fits into a terminal. Files
// have all metrics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/metrics.h"

namespace lockstep {

// The names to show, in order: first all names of `first` that `metrics` has, then the other
// metrics except
//   - deviations ("loss/std"), averages and single classes ("precision/_macro", "auc/class_03").
//     But the macro average of F1 is shown, because it has no plain name.
//   - accuracies of k > 1 ("accuracy03"),
//   - the learning rate and momentum, which the line of the epoch shows.
// The times of TimerCallback come last. A user's own metric is shown if its name has no "/". The
// returned views point into `metrics`.
std::vector<std::string_view> main_metrics(const Metrics& metrics,
                                           const std::vector<std::string>& first);

}  // namespace lockstep
