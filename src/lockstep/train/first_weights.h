// The weights with which a run begins, from the files that its options name.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "lockstep/state/state_dict.h"
#include "lockstep/train/model.h"
#include "lockstep/train/options.h"
#include "lockstep/train/weights.h"

namespace lockstep {

struct FirstWeights {
  StateDict state;                  // all weights of the model; its own where none was taken
  std::int64_t taken = 0;           // how many are from the file
  std::set<std::string> converted;  // "Half to Float", for those whose type was another one
  std::vector<std::string> kept;    // names of the model's own
  std::vector<std::string> unused;  // names in the file that were not taken

  // "120 of 122 weights, converted from Half to Float"
  std::string summary() const;
  // "The model keeps its own fc.weight, fc.bias. Not taken from the file: head.weight." Of many
  // names it lists the first ones. Empty if all weights were taken.
  std::string rest() const;
};

// Reads the file. Throws CheckpointError, which says what does not fit and which option may help,
// if the file does not fit the model and the options are strict, if a number is too large for the
// type of the model, and always if nothing can be taken. Throws ConfigError if a pattern or prefix
// of the options fits no weight. A file without num_batches_tracked (of torchvision, for example)
// fits: the model keeps its own. A second name of a weight (tied weights, which Python saves twice)
// is ignored: a matrix that is equal to one that was taken, unless all its numbers are the same.
FirstWeights first_weights(const Model& model, const Weights& weights);
// The same for a file that was read already.
FirstWeights first_weights(const Model& model, const Weights& weights, const StateDict& file);

// Gives the model the weights of a file, for a loop of your own:
//
//   ls::load_weights(model, {"resnet18.pth", {.strict = false}});
FirstWeights load_weights(const Model& model, const Weights& weights);

// A file that a run loads, and where to.
struct PlannedWeights {
  std::string option;   // "weights", or "network_weights/generator"
  std::string network;  // empty: the whole model
  Model model;
  Weights weights;
};
// By the options weights, weights_skip and network_weights. Throws ConfigError for a network that
// the model does not have.
std::vector<PlannedWeights> planned_weights(const Model& model, const TrainOptions& options);

}  // namespace lockstep
