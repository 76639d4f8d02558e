// Arrays in files as a data set: the rows are the samples.
//
//   auto train = ls::data::array_dataset({.features = "x.npy", .targets = "y.npy"});
//   auto valid = ls::data::array_dataset({.file = "valid.npz", .features = "x", .targets = "y"});
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

struct ArrayDatasetOptions {
  // An .npz or .safetensors file. With it, the names below are those of its arrays. Without it,
  // they are files: "x.npy", or "data.npz#x" for an array in such a file.
  std::filesystem::path file = {};
  std::string features = "";                // the model's input
  std::optional<std::string> targets = {};  // the expected output; none: no targets
  // Instead of features and targets: keys of the batch to arrays.
  std::map<std::string, std::string> keys = {};
  TransformPtr transform = {};         // of the features, or of the key "features"
  TransformPtr target_transform = {};  // of the targets, or of the key "targets"
  // Accepts values that are NaN or infinite. Without it a row with such a value is an error when it
  // is read.
  bool allow_non_finite = false;
};

// Arrays keep the types that they have in the files (read_npy, NpzFile, SafetensorsFile). They are
// mapped: rows are copied from the file into the batch when they are needed, so the data may be
// larger than the memory. The exceptions, which are copied into memory, are numbers in the other
// byte order, unsigned ones of more than a byte, and arrays that are packed (savez_compressed).
// Rows of a file in Fortran's order are read number by number, which is slow: save it with
// numpy.ascontiguousarray(x). A file must not become shorter while it is in use (MappedFile).
//
// Throws ConfigError if options contradict each other, and DataError, which names the file, if one
// is missing, damaged, or has another number of rows than the others.
DatasetPtr array_dataset(const ArrayDatasetOptions& options);

}  // namespace lockstep::data
