// Which of a loader's metrics a person looks at, for a line that fits a terminal. Files have all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/metrics.h"

namespace lockstep {

// The names to show, in order: those of `first` that are there, whatever they are called, then the
// others but for
//   - deviations ("loss/std"), averages and single classes ("precision/_macro", "auc/class_03");
//   the
//     macro average of F1, which has no plain name, is shown,
//   - accuracies of k > 1 ("accuracy03"),
//   - the learning rate and momentum, which an epoch's line has.
// What TimerCallback measured comes last. A metric of the user's own is shown where its name has no
// "/". The names are those of `metrics` and `first`, and live as long.
std::vector<std::string_view> main_metrics(const Metrics& metrics,
                                           const std::vector<std::string>& first);

}  // namespace lockstep
