// @NAME@ train: trains the estimator, evaluates it and writes a report.
// Everything else is Lockstep's command: @NAME@ run -C config.yml, @NAME@ doctor, …
#include <iostream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <lockstep/command/command.h>
#include <lockstep/launch/environment.h>
#include <lockstep/science/experiment.h>

#include "@NAME@.h"

namespace ls = lockstep;
namespace science = lockstep::science;
namespace fs = std::filesystem;

int train(int argc, char** argv) try {
  @NAMESPACE@::BackendConfig config;
  fs::path field = "data/field.h5";
  CLI::App app("Trains the estimator of @NAME@, evaluates it and writes a report.");
  app.add_option("--field", field, "HDF5 file; made up where it is not there")->capture_default_str();
  app.add_option("--logdir", config.logdir, "Folder for logs, the model and the report")->capture_default_str();
  app.add_option("--epochs", config.n_epochs, "At most so many")->capture_default_str();
  app.add_option("--lr", config.lr, "Learning rate")->capture_default_str();
  app.add_option("--workers", config.workers, "Processes that train together; default: one a core");
  app.add_option("--shards", config.shards, "Parts of every batch; results depend on them");
  CLI11_PARSE(app, argc, argv);

  if (field.has_parent_path()) fs::create_directories(field.parent_path());
  if (!fs::exists(field)) @NAMESPACE@::make_field(field);
  const auto data = @NAMESPACE@::load_field(field);
  const ls::data::Loader valid = {data.valid, {.batch_size = 16}};

  @NAMESPACE@::Estimator estimator(config);
  const science::Trackers trackers = {std::make_shared<science::FileTracker>(config.logdir / "report")};
  science::run(science::TrainExperiment{
      .estimator = estimator,
      .loaders = {{"train", {data.train, {.batch_size = 16, .shuffle = true}}}, {"valid", valid}},
      .trackers = trackers});
  estimator.save(config.logdir / "model");
  const auto result = science::run(science::EvaluateExperiment{
      .estimator = estimator, .loader = valid, .cube = data.cube, .title = "@NAME@", .trackers = trackers});
  if (!ls::launch::is_primary_process()) return 0;
  std::cout << "Mean square error " << result.mse << ", of predicting the mean " << result.mse_of_mean << '\n'
            << "Report: " << (config.logdir / "report" / "report.html").string() << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "@NAME@: " << error.what() << '\n';
  return 1;
}

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "train") return train(argc - 1, argv + 1);
  @NAMESPACE@::add_targets();
  return ls::command_main(argc, argv);
}
