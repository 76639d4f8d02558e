// Whether the parts of a run go together: found out with a few samples, before anything starts.
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

// The first samples of a loader. Throws LocatedError at `place` where there are none or the data
// set cannot give them.
Batch some_samples(const data::Loader& loader, std::int64_t count, const config::Node& place);

// What a batch has under a key. Throws LocatedError at `place` with the nearest key.
const torch::Tensor& tensor_of(const Batch& batch, const std::string& key,
                               const config::Node& place);

struct StageToCheck {
  const config::Node& node;      // the stage's document
  const config::Node& document;  // the whole: where the model is
  const TrainOptions& options;
  std::optional<SupervisedKeys> keys;  // of a SupervisedRunner; with another, less is known
  std::optional<std::vector<std::string>> runner_metrics = {};  // as Runner::metric_names()
};

// Samples of every loader go through model, criterion and metrics; optimizer, scheduler, engine,
// callbacks and metrics are checked against each other as the loop would. Throws LocatedError.
void check_stage(const StageToCheck& stage);

}  // namespace lockstep::recipe
