// Trains what a config's document says. `run` and `tune` share this.
#pragma once

#include <optional>
#include <string>

#include "lockstep/config/node.h"
#include "lockstep/recipe/recipe.h"
#include "lockstep/train/options.h"

namespace lockstep::command {

struct PreparedRun {
  // What is recorded with the run. It has the seed, the shards, and the values that were measured
  // in the training data, so that it gives the same run again, on another machine, too.
  config::Node document;
  recipe::Recipe recipe;
};

struct PrepareOptions {
  // "best" or "last": continue an earlier run in the logdir, if there is one.
  std::optional<std::string> autoresume = {};
};

// Builds everything and checks it. Throws LocatedError for mistakes in the document.
PreparedRun prepare_run(config::Node document, const PrepareOptions& options = {});

// Trains, and writes the document to logdir/configs if there is a logdir.
TrainResult train(PreparedRun& run);

}  // namespace lockstep::command
