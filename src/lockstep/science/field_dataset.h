// Simulation fields in HDF5 as a data set of cubes.
//
//   auto data = ls::science::hdf5_dataset({.path = "run/{feature}_{checkpoint:04d}.h5",
//                                          .checkpoints = {0, 10, 20},
//                                          .features = {"velocity", "density"},
//                                          .target = {"stress"},
//                                          .batch_size = {16},
//                                          .train_fraction = 0.8});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/scaling.h"
#include "lockstep/data/transform.h"
#include "lockstep/science/cubes.h"
#include "lockstep/science/fft.h"

namespace lockstep::science {

using data::Normalization;  // data/scaling.h

// Where a dataset has its channels, if it has more dimensions than space.
enum class ChannelAxis {
  // Found out from the shape. [3, 64, 64, 64] has its channels first. [64, 64, 64, 3] has them
  // last, because the last dimension is at most 16 and the others are equal and larger. A shape
  // that could be both, such as [64, 64, 32, 3], is an error.
  kAuto,
  kFirst,
  kLast,
};

struct Hdf5Options {
  // Path of the files. {checkpoint}, with a format such as {checkpoint:04d} or {checkpoint:.2f},
  // stands for the checkpoint times time_granularity; {feature} for the feature's name.
  std::string path;
  std::vector<double> checkpoints = {0};
  double time_granularity = 1;

  // If the path contains {feature}, the names that replace it. Otherwise, the names of datasets in
  // the one file.
  std::vector<std::string> features = {};
  std::vector<std::string> target = {};  // likewise; none: the features themselves
  // The name of the dataset for each feature. Default: the last dataset of the file if the path
  // contains {feature}, else the feature's own name.
  std::vector<std::string> feature_labels = {};
  std::vector<std::string> target_labels = {};
  ChannelAxis channel_axis = ChannelAxis::kAuto;

  // Sides of a cube: one number for all sides, or one per side. None: the whole field.
  Sizes batch_size = {};
  // Points per side that are left after sampling at equal distances.
  std::optional<std::int64_t> sample_to;
  // Dimensions of space. Default: 3, or fewer if the data has fewer.
  std::optional<std::int64_t> dimensions;
  bool flat = false;  // targets as one row
  // Lengths of the sides of the whole field, in any unit. FieldData then has those of what is used,
  // for spectra and derivatives. None: the spacing of the grid is the same in all directions.
  BoxLengths box = {};

  std::optional<double> train_fraction;  // of the cubes; the others are for validation
  // Without train_fraction there is no data for validation. With this, all cubes are used for both,
  // so the validation says nothing about new data.
  bool valid_is_train = false;
  bool shuffle = false;     // the cubes, before they are divided
  std::uint64_t seed = 42;  // of the shuffle
  // Bytes. If all cubes take at most this, they are read once and kept in memory. Otherwise each
  // cube is read when it is needed.
  std::int64_t memory = 1 << 30;
  // Accepts values that are NaN or infinite. Without it they are an error: as the data set is made
  // if it is kept in memory, else when a cube with such a value is read.
  bool allow_non_finite = false;

  // Scales features and targets, channel by channel. The statistics are those of the cubes for
  // training. Estimators save them with the model and scale predictions back.
  Normalization normalize = Normalization::kNone;
  // Statistics to use instead of those of this field: FieldData's scaling of the field that the
  // model was trained on, or Network::scaling().
  std::optional<data::Scaling> scaling = {};

  // Transforms of features and targets, after they were scaled. They may be random. Those of the
  // targets must only move values if targets are scaled, because predictions are scaled back.
  data::TransformPtr transform = {};
  data::TransformPtr target_transform = {};
  // Comes before these two, for the training part only. Features and targets are changed in the
  // same way: random numbers are the same for both.
  data::TransformPtr augment = {};

  bool operator==(const Hdf5Options&) const = default;
};

struct FieldData {
  data::DatasetPtr train;
  data::DatasetPtr valid;  // null if there is neither train_fraction nor valid_is_train
  data::DatasetPtr all;    // every cube, in the order of the field, not augmented
  Sizes size;              // of a field, without the points that do not fill a cube
  Sizes cube;
  BoxLengths box = {};         // lengths of the sides of `size`; none if the options have no box
  BoxLengths cube_box = {};    // lengths of the sides of a cube; likewise
  data::Scaling scaling = {};  // of the samples
};

// Samples have "features" [C, b, …] and "targets" of the same form, or as one row with `flat`. A
// dataset with the dimensions of space [N, …] has one channel. One more dimension in front or at
// the end (channel_axis) is the number of channels; with two more, their product is.
//
// If checkpoints have fields of different sizes, a warning says so, and the points that not all of
// them have are not used.
//
// Throws DataError, naming file and dataset, if a dataset is missing, is empty, has another number
// of dimensions, has another size than the others of its checkpoint, or if its shape does not tell
// where the channels are. Throws DataError with the index of the value if a value is not finite.
// Warns if a field is not a multiple of the cubes. Throws ConfigError for options that are not
// valid, and for a train_fraction of a single cube, because nothing would be left for validation.
FieldData hdf5_dataset(const Hdf5Options& options);

// The path of one file. Throws ConfigError if the pattern is not valid.
std::string format_path(const std::string& pattern, double checkpoint, const std::string& feature);

}  // namespace lockstep::science
