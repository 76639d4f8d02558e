// Stands for science.cpp in a build without the component `science` (LOCKSTEP_SCIENCE=OFF).
#include "lockstep/base/error.h"
#include "lockstep/recipe/prediction_file.h"
#include "lockstep/recipe/targets.h"

namespace lockstep::recipe {

void add_science(Targets&) {}

std::unique_ptr<PredictionFormat> hdf5_format(const std::filesystem::path& path) {
  throw ConfigError(
      "{}: this lockstep is built without HDF5 (LOCKSTEP_SCIENCE=OFF); write .npy or .csv instead",
      path.string());
}

}  // namespace lockstep::recipe
