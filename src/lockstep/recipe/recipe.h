// Makes a run of a config's document. The document has these keys, all on its top level:
//
//   options of train()                  num_epochs, logdir, seed, valid_loader, ddp, …
//   the model, how and on what data     model, criterion, optimizer, scheduler, loaders
//     it is trained
//   several of them, by name            models, criterions, optimizers, schedulers, phases
//   what observes and runs it           callbacks, loggers, runner, engine, plugins
//   stages: {name: …}                   run one after another; each is merged over all of the
//                                       above, and each continues with the model of the one before
//
// Options of train() may also be under `args`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/fields.h"
#include "lockstep/config/node.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/runner/stages.h"
#include "lockstep/train/options.h"

namespace lockstep::recipe {

using lockstep::Stage;  // runner/stages.h

// The data set of a loader with the values that were measured in the training data (fitted.h).
struct FittedDataset {
  std::string stage;  // "" if the config has no stages
  std::string loader;
  config::Node dataset;
};

struct Recipe {
  RunnerPtr runner;
  // At least one; all train the same model. The options have an engine, whatever the config says
  // about it. The name is "" if there is only one stage.
  std::vector<Stage> stages;
  bool deterministic = false;  // LibTorch uses no operation whose result may vary
  std::vector<FittedDataset> fitted = {};
};

// The options of train() that a config can set, each with its description.
const std::vector<config::Field<TrainOptions>>& run_fields();

// The other keys of a document, each with its description.
const std::vector<config::FieldInfo>& section_fields();

// The options of a loader.
std::vector<config::FieldInfo> loader_fields();

// Builds everything and sends samples through it. Throws LocatedError with one line per mistake
// that was found. It writes no files and starts no workers.
Recipe read_recipe(const config::Node& document);

// The part of a config that is evaluated.
struct EvaluationChoice {
  // A loader. None: valid_loader of the config, else "valid", else the only one.
  std::optional<std::string> loader = {};
  // A stage, whose criterion and callbacks are used. None: the last one.
  std::optional<std::string> stage = {};
};

// What evaluates one loader. The model has the weights of a new run.
struct Evaluation {
  RunnerPtr runner;
  Model model;                  // one, or all networks together
  Named<Model> models;          // if they were given by name
  Criterion criterion;          // may be empty
  Named<Criterion> criterions;  // may be empty
  Phases phases;
  Callbacks callbacks;  // without those that make sense in training only
  std::string loader_name;
  data::Loader loader;
  EnginePtr engine;
  std::uint64_t seed = 42;
  bool deterministic = false;
  // None if the config does not say it: then it is that of the checkpoint.
  std::optional<Precision> precision = {};
};

// Builds only what an evaluation needs: data sets of other loaders need not be there. Values that
// the run measured in its training data (fitted.h) are taken from the options of its train loaders.
// Sizes that the model takes from the data are those of the chosen loader. Throws ConfigError if
// there is no such loader or stage, and LocatedError for other mistakes.
Evaluation read_evaluation(const config::Node& document, const EvaluationChoice& choice = {});

// Makes only the engine of a config without stages. Throws ConfigError.
EnginePtr read_engine(const config::Node& document);

// Trains one stage after the other, and returns the result of the last one.
TrainResult run_recipe(const Recipe& recipe);

}  // namespace lockstep::recipe
