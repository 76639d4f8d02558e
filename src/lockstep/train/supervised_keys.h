// The keys of a batch in supervised training, and the steps that use them: the forward pass and the
// loss.
//
//   SupervisedKeys{.input_keys = {"image", "weather"}, .output_keys = {"class", "angle"},
//                  .losses = {{.criterion = "ce", .output = "class", .target = "label"},
//                             {.criterion = "l1", .output = "angle", .target = "angle_true",
//                              .weight = 0.1}}}
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/batch.h"
#include "lockstep/train/criterion.h"
#include "lockstep/train/model.h"

namespace lockstep {

struct RunState;
struct State;

// One term of the loss: weight * criterion(output, target).
struct LossTerm {
  std::string criterion = {};  // its name in `criterions`; empty: the run's only one
  std::string output = {};     // a key of the batch; empty: output_key
  std::string target = {};     // a key of the batch; empty: target_key
  double weight = 1;           // the term is multiplied by it; its metric is not
  std::string name = {};       // of its metric, "loss/<name>"; empty: the key of the output

  friend bool operator==(const LossTerm&, const LossTerm&) = default;
};

struct SupervisedKeys {
  std::string input_key = "features";  // goes into the model
  std::string output_key = "logits";   // the model's output
  // The expected output. It may be the input: with target_key = "features" an autoencoder is
  // trained.
  std::string target_key = "targets";
  std::string loss_key = "loss";  // the criterion's result

  // Several inputs, in the order in which forward takes them, instead of input_key. A model whose
  // forward takes a Batch gets a batch of these, or the whole batch if none are given.
  std::vector<std::string> input_keys = {};
  // The names of several outputs, instead of output_key. If the model returns a Batch, its names
  // are used; output_keys, if given, select some of them.
  std::vector<std::string> output_keys = {};
  // The terms of the loss, which are added up. Empty: one, of output_key and target_key.
  std::vector<LossTerm> losses = {};
};

// The keys and the terms of the loss as text, for comparing the ranks of a run.
std::string describe(const SupervisedKeys& keys);

// Throws ConfigError for keys that contradict each other or are there twice.
void check_keys(const SupervisedKeys& keys);

// The terms of the loss, with all keys filled in.
std::vector<LossTerm> loss_terms(const SupervisedKeys& keys);

// The metrics of the terms, "loss/<name>", in their order. Empty if there is only one term, whose
// value is the loss itself.
std::vector<std::string> loss_metrics(const SupervisedKeys& keys);

// Whether the run has a criterion, or several.
bool has_criterion(const RunState& run);
// Throws ConfigError, which suggests the nearest name, if the run has no such criterion.
const Criterion& criterion_of(const RunState& run, const std::string& name);

// Sends the inputs in `from` through the model and sets its outputs in `to`, which may be the same
// batch.
void forward_keys(const Model& model, const SupervisedKeys& keys, const Batch& from, Batch& to);

// Computes all terms for state.batch and sets the loss. If there are several, each is also a
// metric. Without a criterion there is no loss.
void set_losses(State& state, const SupervisedKeys& keys, const std::vector<LossTerm>& terms);

}  // namespace lockstep
