// From a config's document to a run. The document has, all on its top level,
//
//   what train() can be told            num_epochs, logdir, seed, valid_loader, ddp, …
//   what is trained, on what            model, criterion, optimizer, scheduler, loaders
//   who looks on, where it runs         callbacks, loggers, runner, engine, plugins
//   stages: {name: …}                   one after another, each laid over all of the above; the
//                                       model goes from one to the next
//
// `args` is another place for what train() can be told.
#pragma once

#include <string>
#include <vector>

#include "lockstep/config/fields.h"
#include "lockstep/config/node.h"
#include "lockstep/recipe/targets.h"
#include "lockstep/train/options.h"

namespace lockstep::recipe {

struct Stage {
  std::string name;  // "" where the config has none
  TrainOptions options;
};

struct Recipe {
  RunnerPtr runner;
  std::vector<Stage> stages;   // at least one; all train the same model
  bool deterministic = false;  // LibTorch uses no operation whose result may vary
};

// What train() can be told in a config, with what it is.
const std::vector<config::Field<TrainOptions>>& run_fields();

// The other keys of a document, each with what it is.
const std::vector<config::FieldInfo>& section_fields();

// The options of a loader.
std::vector<config::FieldInfo> loader_fields();

// Builds everything and sends samples through it. Throws LocatedError, with a line for each mistake
// that was found; nothing has been written and nobody started then.
Recipe read_recipe(const config::Node& document);

// Trains stage after stage, and returns the last one's result.
TrainResult run_recipe(const Recipe& recipe);

// Makes the recipe go on with an earlier run in its logdir, from its "best" or "last" checkpoint:
// stages that were finished are taken from there, the one that was not is resumed. Where there is
// nothing to go on with, it starts anew. Throws ConfigError where there is no logdir.
void autoresume(Recipe& recipe, const std::string& checkpoint);

}  // namespace lockstep::recipe
