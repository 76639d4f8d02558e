// Checks that the parts of a stage fit together, before anything starts. What is checked is decided
// by resolve() and dry_run() of train/; here an error gets its place in the config.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/config/node.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/runner/runner.h"
#include "lockstep/train/options.h"

namespace lockstep::recipe {

// The first samples of a loader. Throws LocatedError at `place` if there are none, or if the data
// set fails to return them.
Batch some_samples(const data::Loader& loader, std::int64_t count, const config::Node& place);

// The batch's tensor of this key. If there is none, throws LocatedError at `place` with the nearest
// key.
const torch::Tensor& tensor_of(const Batch& batch, const std::string& key,
                               const config::Node& place);

struct StageToCheck {
  const config::Node& node;  // the stage's document
  const TrainOptions& options;
  Runner& runner;
};

// Resolves the stage's options as train() would, and tries the result with samples. Returns the
// engine of the stage. Throws LocatedError. LibTorch's random state is the same afterwards.
EnginePtr check_stage(const StageToCheck& stage);

}  // namespace lockstep::recipe
