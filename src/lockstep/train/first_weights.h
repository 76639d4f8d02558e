// The weights with which a run begins, from the file that the option `weights` names.
#pragma once

#include <string>
#include <vector>

#include "lockstep/state/state_dict.h"
#include "lockstep/train/model.h"
#include "lockstep/train/options.h"

namespace lockstep {

struct FirstWeights {
  StateDict state;                    // all weights of the model; its own for those left out
  std::vector<std::string> left_out;  // of the model and of the file, by weights_skip
};

// Reads options.weights, which must be set. Throws CheckpointError, which names the weight, if the
// file does not fit the model, and ConfigError if a pattern of weights_skip matches nothing.
FirstWeights first_weights(const Model& model, const TrainOptions& options);

}  // namespace lockstep
