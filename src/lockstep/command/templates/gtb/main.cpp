// @NAME@ train: trains the estimator, evaluates it and writes a report.
// Everything else is Lockstep's command: @NAME@ run -C config.yml, @NAME@ doctor, …
#include <iostream>

#include <CLI/CLI.hpp>
#include <lockstep/command/command.h>
#include <lockstep/process/environment.h>
#include <lockstep/science/experiment.h>

#include "@NAME@.h"

namespace ls = lockstep;
namespace science = lockstep::science;
namespace fs = std::filesystem;

// The file of --field, which must exist. Without --field, a file with synthetic data.
fs::path find_field(const std::optional<fs::path>& given) {
  if (!given) return @NAMESPACE@::synthetic_field();
  if (!fs::exists(*given)) throw ls::DataError("--field {}: there is no such file", given->string());
  return *given;
}

int train(int argc, char** argv) try {
  @NAMESPACE@::BackendConfig config;
  std::optional<fs::path> given;
  CLI::App app("Trains the estimator of @NAME@, evaluates it and writes a report.");
  app.add_option("--field", given, "HDF5 file of your simulation; default: synthetic turbulence, in " +
                                       std::string(@NAMESPACE@::kSyntheticField));
  app.add_option("--logdir", config.logdir, "Folder for logs, the model and the report")->capture_default_str();
  app.add_option("--epochs", config.n_epochs, "Epochs at most")->capture_default_str();
  app.add_option("--lr", config.lr, "Learning rate")->capture_default_str();
  app.add_option("--workers", config.workers, "Processes that train together; default: one per GPU, else per core");
  app.add_option("--shards", config.shards, "Parts of every batch; results depend on them");
  app.add_option("--max-restarts", config.max_restarts, "How many times workers are made anew after one was lost")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // a launcher does not start the program again after 2
  }

  const fs::path field = find_field(given);
  const auto data = @NAMESPACE@::load_field({.path = field.string()});
  const ls::data::Loader valid = {data.valid, {.batch_size = 16}};

  @NAMESPACE@::Estimator estimator(config);
  const science::Trackers trackers = {std::make_shared<science::FileTracker>(config.logdir / "report")};
  science::EvaluateExperiment evaluation{
      .estimator = estimator, .loader = valid, .cube = data.cube, .title = "@NAME@", .trackers = trackers};
  science::check(evaluation);  // before the training, so that no training is lost to a mistake
  science::run(science::TrainExperiment{
      .estimator = estimator,
      .loaders = {{"train", {data.train, {.batch_size = 16, .shuffle = true}}}, {"valid", valid}},
      .trackers = trackers});
  estimator.save(config.logdir / "model");
  evaluation.facts = {{"data", field.string()},
                      {"best epoch", std::to_string(estimator.best_epoch())},
                      {"its validation loss", fmt::format("{:.5g}", estimator.best_loss())}};
  const auto result = science::run(evaluation);
  if (!ls::process::is_primary_process()) return 0;
  std::cout << "Epoch " << estimator.best_epoch() << ", the best: mean square error " << result.mse
            << ", of predicting the mean " << result.mse_of_mean << '\n'
            << "Report: " << (config.logdir / "report" / "report.html").string() << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "@NAME@: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}

int main(int argc, char** argv) {
  @NAMESPACE@::add_targets();
  return ls::command_main(
      argc, argv,
      {{.name = "train", .about = "Train the estimator, evaluate it, write a report", .run = train}});
}
