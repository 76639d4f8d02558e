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
#include "lockstep/science/cubes.h"

namespace lockstep::science {

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

  // Sides of a cube: one number for all sides, or one per side. None: the whole field.
  Sizes batch_size = {};
  // Points per side that are left after sampling at equal distances.
  std::optional<std::int64_t> sample_to;
  // Dimensions of space. Default: 3, or fewer if the data has fewer.
  std::optional<std::int64_t> dimensions;
  bool flat = false;  // targets as one row

  std::optional<double> train_fraction;  // of the cubes; the others are for validation
  bool shuffle = false;                  // the cubes, before they are divided
  std::uint64_t seed = 42;               // of the shuffle
  // Bytes. If all cubes take at most this, they are read once and kept in memory. Otherwise each
  // cube is read when it is needed.
  std::int64_t memory = 1 << 30;
  // Accepts values that are NaN or infinite. Without it they are an error: as the data set is made
  // if it is kept in memory, else when a cube with such a value is read.
  bool allow_non_finite = false;

  bool operator==(const Hdf5Options&) const = default;
};

struct FieldData {
  data::DatasetPtr train;
  data::DatasetPtr valid;  // the same as train if there is no train_fraction
  data::DatasetPtr all;    // every cube, in the order of the field
  Sizes size;              // of a field, without the points that do not fill a cube
  Sizes cube;
};

// Samples have "features" [C, b, …] and "targets" of the same form, or as one row with `flat`. A
// dataset with the dimensions of space [N, …] has one channel. One more dimension in front is the
// number of channels; with two more, their product is.
//
// Throws DataError, naming file and dataset, if a dataset is missing, is empty, has another number
// of dimensions, or has another size than the first one. Throws DataError with the index of the
// value if a value is not finite. Warns if a field is not a multiple of the cubes. Throws
// ConfigError for options that are not valid, and for a train_fraction of a single cube, because
// nothing would be left for validation.
FieldData hdf5_dataset(const Hdf5Options& options);

// The path of one file. Throws ConfigError if the pattern is not valid.
std::string format_path(const std::string& pattern, double checkpoint, const std::string& feature);

}  // namespace lockstep::science
