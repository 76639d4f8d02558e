// Training and evaluating an estimator, with parameters, metrics and pictures sent to trackers.
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

// Trains; tracks the parameters ("model - lr"), each loader's loss at the end of each epoch ("train
// - loss"), the run time ("train - runtime", in seconds), the model as text, and the loss curves as
// a picture and a table.
//
// If a tracker fails, a warning says so and the tracker is not used again in this experiment.
// Training continues.
void run(const TrainExperiment& experiment);

struct EvaluateExperiment {
  Estimator& estimator;
  data::Loader loader;  // compared with its targets
  // Sides of a target, without channels. Slices and spectra need it if targets are flat.
  Sizes cube = {};
  // Sides of the whole field, if the loader's cubes fill one or more fields, each in order
  // (FieldData's all). Spectra are then means over the fields, and slices show the first one.
  // Without it, spectra are means over single cubes, and slices show the first cube.
  Sizes field = {};
  std::optional<Range> range = {};  // of values that PDF, CDF and slices show; none: all values
  std::string title = "Evaluation";
  std::vector<std::pair<std::string, std::string>> facts = {};  // added to those in the report
  Trackers trackers = {};
  // Lengths of the field's sides, or of a cube's sides if `field` is empty. None: in proportion to
  // the number of points.
  BoxLengths box = {};
};

struct Evaluation {
  // In the shape of the targets. Both are in the units of the file if the samples are scaled.
  torch::Tensor predict;
  torch::Tensor target;
  double ks = 0;  // the Kolmogorov-Smirnov statistic of predictions and targets
  double mse = 0;
  double mse_of_mean = 0;  // of predicting the targets' mean everywhere
  double seconds = 0;
};

// Throws what run() would throw for options and data that do not fit together. Call it before
// training, so that such a mistake does not show only after the training.
void check(const EvaluateExperiment& experiment);

// Predicts; tracks "eval - KS Stat", "eval - MSE Loss", "eval - runtime", and as pictures (SVG) and
// tables (CSV): PDF and CDF, spectra with the -5/3 line, slices and their difference; and
// report.html, which has all of it in one page. All predictions and targets are held in memory. If
// the data set scales its samples (normalize), all of this is in the units of the file.
// Values that are not finite are counted in the report and left out of its pictures. Throws
// DataError if no prediction or no target is finite.
Evaluation run(const EvaluateExperiment& experiment);

}  // namespace lockstep::science
