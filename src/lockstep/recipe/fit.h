// Checks with a few samples that the parts of a run fit together, before anything starts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/config/node.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/loader.h"
#include "lockstep/runner/supervised.h"
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
  // Of a SupervisedRunner. For another runner, the model is not tried with samples.
  std::optional<SupervisedKeys> keys;
};

// Resolves the stage's options as train() would. Then sends samples of every loader through model,
// criterion and metrics, and makes optimizer and scheduler. Throws LocatedError.
void check_stage(const StageToCheck& stage);

}  // namespace lockstep::recipe
