// Tables in HDF5 as a data set: the rows of datasets are the samples.
//
//   auto train = ls::science::hdf5_table({.path = "events.h5", .features = {"x"}, .targets = "y"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::science {

struct Hdf5TableOptions {
  std::filesystem::path path = {};
  // Datasets of the file: "x", "group/x". One keeps its type and shape. Several become one row of
  // float32 per sample: each dataset is a column, or several columns if its rows have several
  // numbers.
  std::vector<std::string> features = {};
  std::optional<std::string> targets = {};   // likewise, one dataset; none: no targets
  data::TransformPtr transform = {};         // of the features
  data::TransformPtr target_transform = {};  // of the targets
  // Bytes. If all rows take at most this, they are read once and kept in memory. Otherwise rows are
  // read when they are needed.
  std::int64_t memory = 1 << 30;
  // Accepts values that are NaN or infinite. Without it they are an error: as the data set is made
  // if it is kept in memory, else when a row with such a value is read.
  bool allow_non_finite = false;
};

// Samples have "features" and, if there are any, "targets". Any thread may read, but HDF5 does one
// read at a time. Throws ConfigError for options that are not valid, and DataError, which names
// file and dataset, if a dataset is missing, has no rows, or not as many as the first one.
data::DatasetPtr hdf5_table(const Hdf5TableOptions& options);

}  // namespace lockstep::science
