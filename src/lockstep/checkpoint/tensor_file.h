// Tensors from a file as a data set: what torch.save({"features": x, "targets": y}, path) wrote in
// Python, or checkpoint::save here. The samples are the rows of a tensor, or the tensors of a list,
// which may have different lengths.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::data {

struct TensorFileOptions {
  std::filesystem::path path = {};
  std::string features = "features";               // key in the file
  std::optional<std::string> targets = "targets";  // likewise; none: no targets
  // Instead of features and targets: keys of the batch to keys in the file.
  std::map<std::string, std::string> keys = {};
  TransformPtr transform = {};    // of the features, or of the key "features"
  bool allow_non_finite = false;  // accepts values that are NaN or infinite
};

// Throws ConfigError if options contradict each other, and DataError if the file is missing, is not
// such a file, lacks a key, or has a value that is not finite.
DatasetPtr tensor_file(const TensorFileOptions& options);

}  // namespace lockstep::data
