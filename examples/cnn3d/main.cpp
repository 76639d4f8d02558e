// A network learns the large scales of a turbulent velocity field.
//
// The program makes two synthetic fields with the spectrum of real turbulence and writes them to
// HDF5 files, as a simulation would. All workers train on cubes of the first field. The second
// field, which the network has never seen, is predicted as a whole and compared with the truth in a
// report.
#include <iostream>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace science = lockstep::science;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSide = 96;  // points of the field in each direction
constexpr std::int64_t kCube = 16;  // points of a sample in each direction
constexpr double kCutoff = 6;       // the large scales: wave numbers up to this

// Writes a velocity field and its large scales to a file, as a simulation would.
void make_field(const fs::path& path, std::uint64_t seed) {
  const torch::Tensor velocity = science::synthetic_turbulence(
      {.shape = {kSide, kSide, kSide}, .seed = seed, .components = 3});
  std::vector<torch::Tensor> large;
  for (const torch::Tensor& component : velocity.unbind(0)) {
    large.push_back(science::spectral_filter(component, kCutoff).to(torch::kFloat32));
  }
  science::write_hdf5(path, {{"velocity", velocity}, {"large_scales", torch::stack(large)}});
}

// Returns the cubes of a field. Makes the file first if it does not exist.
science::FieldData load_field(const fs::path& path, std::uint64_t seed) {
  if (!fs::exists(path)) make_field(path, seed);
  return science::hdf5_dataset({.path = path.string(),
                                .features = {"velocity"},
                                .target = {"large_scales"},
                                .batch_size = {kCube},
                                .flat = true,
                                .train_fraction = 0.8,
                                .shuffle = true});
}

// The validation loss of a prediction that is the mean of all training targets everywhere.
double loss_of_mean(const science::FieldData& data) {
  const auto all = [](const ls::data::DatasetPtr& dataset) {
    std::vector<torch::Tensor> targets;
    for (std::int64_t i = 0; i < dataset->size(); ++i)
      targets.push_back(dataset->sample(i)["targets"]);
    return torch::stack(targets);
  };
  const torch::Tensor valid = all(data.valid);
  return torch::smooth_l1_loss(all(data.train).mean().expand_as(valid), valid).item<double>();
}

}  // namespace

int main(int argc, char** argv) try {
  fs::path logdir = "logs/cnn3d";
  std::int64_t epochs = 150;
  std::optional<int> workers, shards;
  std::optional<std::string> mlflow;
  std::string precision = "fp32";
  int max_restarts = 0;
  bool verbose = false;
  CLI::App app("Trains CNN3d on a synthetic turbulent field, and evaluates it.");
  app.add_option("--logdir", logdir, "Folder for the field, logs, the model and the report")
      ->capture_default_str();
  app.add_option("--epochs", epochs,
                 "Largest number of epochs; early stopping may end the training before")
      ->capture_default_str();
  app.add_option("--workers", workers,
                 "Processes that train together; default: one per GPU, else per core");
  app.add_option("--shards", shards,
                 "Parts of every batch; results depend on them, not on the workers");
  app.add_option("--max-restarts", max_restarts,
                 "How many times workers are made anew after one was lost")
      ->capture_default_str();
  app.add_option("--precision", precision, "Of the forward pass and loss: fp32, bf16, fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_option("--mlflow", mlflow, "Address of an MLflow server that also gets the results");
  app.add_flag("--verbose", verbose, "Show a progress bar");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // a launcher does not start the program again after 2
  }

  fs::create_directories(logdir);
  const auto data = load_field(logdir / "field.h5", 1);
  const auto unseen = load_field(logdir / "unseen.h5", 2);

  science::CNN3d estimator({.n_epochs = epochs,
                            .patience = 25,
                            .logdir = logdir,
                            .lr = 2e-3,
                            .ddp = true,
                            .workers = workers,
                            .shards = shards,
                            .max_restarts = max_restarts,
                            .verbose = verbose,
                            .precision = precision});
  science::Trackers trackers = {std::make_shared<science::FileTracker>(logdir / "report")};
  if (mlflow) {
    trackers.push_back(std::make_shared<science::MlflowTracker>(
        science::MlflowOptions{.uri = *mlflow, .experiment = "cnn3d", .run_name = "large scales"}));
  }
  science::EvaluateExperiment evaluation{.estimator = estimator,
                                         .loader = {unseen.all, {.batch_size = 16}},
                                         .cube = unseen.cube,
                                         .field = unseen.size,
                                         .title = "Large scales of an unseen turbulent field",
                                         .trackers = trackers};
  science::check(evaluation);  // finds mistakes before the training, not after it
  science::run(science::TrainExperiment{
      .estimator = estimator,
      .loaders = {{"train", {data.train, {.batch_size = 16, .shuffle = true}}},
                  {"valid", {data.valid, {.batch_size = 16}}}},
      .trackers = trackers});
  estimator.save(logdir / "model");
  const double loss = estimator.history().rbegin()->second.at("valid").at("loss");
  const double mean_loss = loss_of_mean(data);
  const double margin = 100 * (1 - loss / mean_loss);
  evaluation.facts = {{"validation loss (smooth L1)", fmt::format("{:.5f}", loss)},
                      {"validation loss of predicting the mean", fmt::format("{:.5f}", mean_loss)},
                      {"below that by", fmt::format("{:.1f} %", margin)}};
  science::run(evaluation);
  for (const auto& tracker : trackers) tracker->finish();
  if (!ls::process::is_primary_process()) return 0;

  std::cout << fmt::format("Validation loss {:.5f}, {:.1f} % {} predicting the mean ({:.5f})\n",
                           loss, std::abs(margin), margin < 0 ? "above" : "below", mean_loss)
            << "Weights " << estimator.weights_hash() << '\n'
            << "Report: " << (logdir / "report" / "report.html").string() << '\n';
} catch (const std::exception& error) {
  std::cerr << "cnn3d: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
