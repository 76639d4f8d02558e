// Training and evaluating an estimator, with all that is worth keeping tracked.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/types.h>

#include "lockstep/data/loaders.h"
#include "lockstep/science/cubes.h"
#include "lockstep/science/estimator.h"
#include "lockstep/science/fft.h"
#include "lockstep/science/statistics.h"
#include "lockstep/science/tracker.h"

namespace lockstep::science {

using Trackers = std::vector<std::shared_ptr<Tracker>>;

struct TrainExperiment {
  Estimator& estimator;
  data::Loaders loaders;
  Trackers trackers = {};
};

// Trains; tracks the parameters ("model - lr"), each loader's loss as its epoch ends ("train -
// loss"), the run time ("train - runtime", in seconds), the model in words, and the loss curves as
// a picture and a table.
//
// A tracker that fails is warned of and left alone from then on; it never costs what was trained.
void run(const TrainExperiment& experiment);

struct EvaluateExperiment {
  Estimator& estimator;
  data::Loader loader;  // compared with its targets
  Sizes cube = {};  // of a target, without channels, where targets are flat; for slices and spectra
  // Of the whole field, where the loader's cubes fill one field or several, each in order
  // (FieldData's all): spectra are means over the fields and slices are of the first one then, else
  // both are of single cubes.
  Sizes field = {};
  std::optional<Range> range = {};  // of values that PDF, CDF and slices show; none: all there are
  std::string title = "Evaluation";
  std::vector<std::pair<std::string, std::string>> facts = {};  // more of them for the report
  Trackers trackers = {};
  // Lengths of the field's sides, or of a cube's where there is no field. None: in proportion to
  // the points.
  BoxLengths box = {};
};

struct Evaluation {
  torch::Tensor predict;  // as the targets are
  torch::Tensor target;
  double ks = 0;  // the Kolmogorov-Smirnov statistic of both
  double mse = 0;
  double mse_of_mean = 0;  // of predicting the targets' mean everywhere
  double seconds = 0;
};

// Throws what run() would throw for options and data that do not go together. Call it before
// training: an evaluation that cannot be should not be found out after it.
void check(const EvaluateExperiment& experiment);

// Predicts; tracks "eval - KS Stat", "eval - MSE Loss", "eval - runtime", and as pictures (SVG) and
// tables (CSV): PDF and CDF, spectra with the -5/3 line, slices and their difference; and
// report.html, which has all of it in one page. Predictions and targets are in memory meanwhile.
// Values that are not finite are counted in the report and left out of its pictures; DataError
// where there are no others.
Evaluation run(const EvaluateExperiment& experiment);

}  // namespace lockstep::science
