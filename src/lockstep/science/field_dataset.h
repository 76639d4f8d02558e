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
  // Of the files. {checkpoint}, with a format such as {checkpoint:04d} or {checkpoint:.2f}, stands
  // for the checkpoint times time_granularity; {feature} for the feature's name.
  std::string path;
  std::vector<double> checkpoints = {0};
  double time_granularity = 1;

  // With {feature} in the path, names for it; without, names of datasets in the one file.
  std::vector<std::string> features = {};
  std::vector<std::string> target = {};  // likewise; none: the features themselves
  // The dataset of each. Default: the file's last with {feature} in the path, its name without.
  std::vector<std::string> feature_labels = {};
  std::vector<std::string> target_labels = {};

  Sizes batch_size = {};                  // of a cube: one number or each; none: the whole field
  std::optional<std::int64_t> sample_to;  // points a side that equidistant sampling leaves
  std::optional<std::int64_t>
      dimensions;     // of space; default: 3, or fewer where the data has fewer
  bool flat = false;  // targets as one row

  std::optional<double> train_fraction;  // of the cubes; the others are for validation
  bool shuffle = false;                  // before they are divided
  std::uint64_t seed = 42;               // of that
  // Bytes: cubes up to this are read once and kept, more are read as they are needed.
  std::int64_t memory = 1 << 30;
  // Takes values that are NaN or infinite as they are. Without it they are an error: of the whole
  // data set where it is kept in memory, else of the cube that has them when it is read.
  bool allow_non_finite = false;

  bool operator==(const Hdf5Options&) const = default;
};

struct FieldData {
  data::DatasetPtr train;
  data::DatasetPtr valid;  // train itself, where there is no fraction
  data::DatasetPtr all;    // every cube, in the order of the field
  Sizes size;              // of a field, as it is cut: without what fills no cube
  Sizes cube;
};

// "features" [C, b, …] and "targets" alike, or [·] where flat. A dataset [N, …] has one channel,
// one with a dimension more has as many as that, and two more are taken together. Throws DataError
// naming file and dataset where one is missing, empty, of another rank, or of another size than the
// first, and where a value is not finite, which is named by its index; warns where a field is not a
// multiple of the cubes. Throws ConfigError for options without meaning, and for a train_fraction
// of a single cube, which would leave nothing for validation.
FieldData hdf5_dataset(const Hdf5Options& options);

// The path of one file. Throws ConfigError where the pattern is none.
std::string format_path(const std::string& pattern, double checkpoint, const std::string& feature);

}  // namespace lockstep::science
