// params.json: what an estimator was made with, beside its model.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/log/logger.h"
#include "lockstep/science/cubes.h"

namespace lockstep::science {

struct SavedParameters {
  std::string estimator;
  HParams parameters;
  std::optional<FieldShape> shape;  // of the samples it is for
};

void save_parameters(const std::filesystem::path& folder, const SavedParameters& saved);

// Throws CheckpointError where they are not there, damaged, or another estimator's.
SavedParameters load_parameters(const std::filesystem::path& folder, const std::string& estimator);

}  // namespace lockstep::science
