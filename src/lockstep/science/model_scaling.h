// The scaling of a model's samples belongs to the model: its weights fit no other.
#pragma once

#include <string>

#include "lockstep/data/loader.h"
#include "lockstep/data/scaling.h"

namespace lockstep::science {

struct ModelScaling {
  std::string name;  // of the model, for messages
  const data::Scaling& scaling;
};

// Throws DataError if the loader's samples have another scaling than the model was trained with.
void check_scaling(const ModelScaling& model, const data::Loader& loader);

}  // namespace lockstep::science
