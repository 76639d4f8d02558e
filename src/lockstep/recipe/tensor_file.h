// Tensors from a file as a data set: what torch.save({"features": x, "targets": y}, path) wrote in
// Python, or checkpoint::save here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/data/dataset.h"
#include "lockstep/data/transform.h"

namespace lockstep::recipe {

struct TensorFileOptions {
  std::filesystem::path path = {};
  std::string features = "features";               // key in the file
  std::optional<std::string> targets = "targets";  // likewise; none: no targets
  data::TransformPtr transform = {};               // of the features
};

// Throws DataError if the file is missing, is not such a file, or lacks a key.
data::DatasetPtr tensor_file(const TensorFileOptions& options);

}  // namespace lockstep::recipe
