// lockstep predict: writes the outputs of a trained model to a file.
#include <iostream>

#include <CLI/CLI.hpp>

#include "lockstep/base/text.h"
#include "lockstep/command/command.h"
#include "lockstep/command/saved_run.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/data/loader.h"
#include "lockstep/log/progress_bar.h"
#include "lockstep/recipe/prediction_file.h"
#include "lockstep/recipe/scaling.h"

namespace lockstep::command {
namespace {

struct PredictCommandOptions {
  SavedRunOptions run;
  std::string output;
  std::vector<std::string> keys;
  bool verbose = true;
};

// Row i of the file is sample i of the data set.
data::Loader every_sample(const data::Loader& loader) {
  data::LoaderOptions options = loader.options();
  options.shuffle = false;
  options.sampler = nullptr;
  options.drop_last = false;
  options.max_batches = {};
  options.batch_transform = {};
  return {loader.dataset(), options};
}

int predict(const PredictCommandOptions& options) {
  const SavedRun run = open_saved_run(options.run);
  const recipe::Evaluation& what = run.evaluation;
  const data::Loader loader = every_sample(what.loader);
  if (loader.samples() == 0) {
    throw ConfigError("loader '{}': expected samples to predict, got none", what.loader_name);
  }
  recipe::PredictionFile file(
      {.path = options.output, .keys = options.keys, .samples = loader.order({.seed = what.seed})});
  // Made before the workers are forked: the bar replaces the handler of warnings while it is shown,
  // and so does the engine.
  std::optional<ProgressBar> bar;
  if (options.verbose && run.is_primary) {
    bar.emplace(Console::standard(),
                ProgressBarOptions{.loader = what.loader_name, .num_batches = loader.batches()});
  }
  BarPosition position;
  const recipe::OutputScaling scaling(loader);
  const auto write = [&](Batch& outputs) {
    scaling.undo(outputs);
    file.write(outputs);
    position.batches += 1;
    position.samples += outputs.size();
    if (bar) bar->update(position, {});
  };
  what.runner->predict_loader({.loader = loader,
                               .model = what.model,
                               .seed = what.seed,
                               .engine = what.engine,
                               .precision = what.precision},
                              write);
  if (!run.is_primary) return kDone;
  const auto paths = file.finish();
  if (bar) bar->finish(position, {});
  for (const auto& path : paths) {
    std::cout << fmt::format("{}: {} samples of loader '{}'\n", path.string(),
                             with_thousands(loader.samples()), what.loader_name);
  }
  return kDone;
}

}  // namespace

void add_predict(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("predict", "Write the outputs of a trained model");
  command->footer(R"(
The config is the one that the checkpoint was trained with. Row i of the file belongs to sample i of
the loader's data set: shuffle, sampler, drop_last and max_batches of the loader have no effect. If
the data set scales its targets (normalize), outputs of their size are scaled back.

  x.npy   for numpy.load; several outputs are several files: x-class.npy, x-angle.npy
  x.h5    one dataset per output
  x.csv   one line per sample: index,logits_0,logits_1,…

Examples:
  lockstep predict logs --output predictions.npy
  lockstep predict logs --output test.h5 --config test.yml --loader test --workers 4
  lockstep predict logs/checkpoints/last.pth --output logits.csv --keys logits)");
  auto options = std::make_shared<PredictCommandOptions>();
  add_saved_run_options(*command, options->run);
  command->add_option("-o,--output", options->output, "File to write: .npy, .h5 or .csv")
      ->required();
  command
      ->add_option("--keys", options->keys,
                   "Outputs to write, separated by commas; default: all of them")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--verbose,!--no-verbose", options->verbose, "A progress bar, or none");
  command->callback([options, &chosen] { chosen = [options] { return predict(*options); }; });
}

}  // namespace lockstep::command
