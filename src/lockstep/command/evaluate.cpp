// lockstep evaluate: computes the metrics of a trained model.
#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/base/metrics.h"
#include "lockstep/base/text.h"
#include "lockstep/command/command.h"
#include "lockstep/command/saved_run.h"
#include "lockstep/command/subcommand.h"
#include "lockstep/data/sharding.h"
#include "lockstep/process/forked_workers.h"

namespace lockstep::command {
namespace {

namespace fs = std::filesystem;

struct EvaluateCommandOptions {
  SavedRunOptions run;
  std::optional<std::string> output;
  bool verbose = true;
};

struct Evaluated {
  std::string checkpoint;
  std::string loader;
  std::int64_t samples = 0;
  Metrics metrics;
};

void print_table(const Evaluated& result) {
  std::size_t width = 0;
  for (const auto& [name, value] : result.metrics) width = std::max(width, name.size());
  std::cout << fmt::format("{}: {} samples of loader '{}'\n", printable(result.checkpoint),
                           with_thousands(result.samples), printable(result.loader));
  for (const auto& [name, value] : result.metrics) {
    std::cout << fmt::format("  {:<{}}  {:.6g}\n", printable(name), width, value);
  }
}

// A value that JSON does not have, such as NaN, becomes null.
void write_json(const fs::path& path, const Evaluated& result) {
  nlohmann::ordered_json json = {{"checkpoint", result.checkpoint},
                                 {"loader", result.loader},
                                 {"samples", result.samples},
                                 {"metrics", nlohmann::ordered_json::object()}};
  for (const auto& [name, value] : result.metrics) json["metrics"][name] = value;
  // A path need not be UTF-8; JSON must be.
  const auto bad_utf8 = nlohmann::ordered_json::error_handler_t::replace;
  write_file_atomically(path, json.dump(2, ' ', false, bad_utf8) + "\n");
}

// Called before the evaluation, which may take hours.
void check_output(const fs::path& path) {
  if (path.extension() != ".json") {
    throw ConfigError("--output: expected a name that ends with .json, got '{}'", path.string());
  }
  if (path.has_parent_path() && !fs::is_directory(path.parent_path())) {
    throw ConfigError("--output: {}: there is no such folder", path.parent_path().string());
  }
}

int evaluate(const EvaluateCommandOptions& options) {
  if (options.output) check_output(*options.output);
  const SavedRun run = open_saved_run(options.run);
  process::end_on_failure(kWorkerFailed);
  const recipe::Evaluation& what = run.evaluation;
  Evaluated result{.checkpoint = run.checkpoint.string(),
                   .loader = what.loader_name,
                   .samples = data::epoch_size(what.loader, what.engine->shards()).samples,
                   .metrics = {}};
  result.metrics =
      what.runner->evaluate_loader({.loader = what.loader,
                                    .model = what.models.empty() ? what.model : Model(),
                                    .models = what.models,
                                    .criterion = what.criterion,
                                    .criterions = what.criterions,
                                    .phases = what.phases,
                                    .callbacks = what.callbacks,
                                    .seed = what.seed,
                                    .verbose = options.verbose,
                                    .engine = what.engine,
                                    .name = what.loader_name,
                                    .precision = what.precision});
  if (!run.is_primary) return kDone;
  print_table(result);
  if (options.output) write_json(*options.output, result);
  return kDone;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& chosen) {
  auto* const command = app.add_subcommand("evaluate", "Compute the metrics of a trained model");
  command->footer(R"(
The config is the one that the checkpoint was trained with. Its callbacks compute the metrics.

Examples:
  lockstep evaluate logs                                    the best checkpoint, the valid_loader
  lockstep evaluate logs --checkpoint last --loader train
  lockstep evaluate logs/checkpoints/epoch.0007.pth --output metrics.json
  lockstep evaluate logs --config test.yml --loader test    test.yml has another loader
  lockstep evaluate logs --workers 4 loaders.valid.batch_size=256)");
  auto options = std::make_shared<EvaluateCommandOptions>();
  add_saved_run_options(*command, options->run);
  command->add_option("-o,--output", options->output, "Also write the metrics to this .json file");
  command->add_flag("--verbose,!--no-verbose", options->verbose, "A progress bar, or none");
  command->callback([options, &chosen] { chosen = [options] { return evaluate(*options); }; });
}

}  // namespace lockstep::command
