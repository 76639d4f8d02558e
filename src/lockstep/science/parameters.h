// params.json: the options of an estimator, in the same folder as its model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/data/scaling.h"
#include "lockstep/log/logger.h"
#include "lockstep/science/cubes.h"

namespace lockstep::science {

struct SavedParameters {
  std::string estimator;
  HParams parameters;
  std::optional<FieldShape> shape;  // of the samples it is for
  data::Scaling scaling = {};       // likewise
};

void save_parameters(const std::filesystem::path& folder, const SavedParameters& saved);

// Throws CheckpointError if the file is missing, damaged, or of another kind of estimator.
SavedParameters load_parameters(const std::filesystem::path& folder, const std::string& estimator);

}  // namespace lockstep::science
