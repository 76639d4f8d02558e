// A custom runner: one class says where its workers, its data and its loss come from.
#include <iostream>
#include <numeric>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

struct Settings {
  std::optional<std::string> root;    // default: Debian's Fashion-MNIST
  std::optional<std::int64_t> limit;  // number of samples of each data set
  std::optional<int> workers;         // default: one per GPU, without GPUs one per core
  std::int64_t batch_size = 32;       // of one worker
};

class CustomRunner : public ls::Runner {
 public:
  explicit CustomRunner(Settings settings) : settings_(std::move(settings)) {}

 protected:
  std::shared_ptr<ls::Engine> get_engine() override {
    return std::make_shared<ls::DistributedDataParallelEngine>(
        ls::DistributedDataParallelOptions{.workers = settings_.workers});
  }

  // Called once, before the workers are forked: they share what it loads.
  ls::data::Loaders get_loaders() override {
    return {{"train", loader(/*train=*/true)}, {"valid", loader(/*train=*/false)}};
  }

  void handle_batch(ls::State& state) override {
    const auto logits = state.model(state.batch["features"]);
    state.batch.set("logits", logits);
    state.batch.set("loss", state.criterion(logits, state.batch["targets"]));
    // A metric of this batch. The loader's metric is the mean over the samples of all workers.
    state.batch_metrics["confidence"] =
        std::get<0>(logits.detach().softmax(1).max(1)).mean().item<double>();
  }

 private:
  ls::data::Loader loader(bool train) const {
    const auto data = load(train);
    return {data,
            {.batch_size = settings_.batch_size,
             .sampler = std::make_shared<ls::data::DistributedSampler>(
                 data->size(), ls::data::DistributedSamplerOptions{.shuffle = train})}};
  }

  ls::data::DatasetPtr load(bool train) const {
    const auto all = settings_.root ? ls::data::mnist({.root = *settings_.root, .train = train})
                                    : ls::data::fashion_mnist({.train = train, .download = true});
    if (!settings_.limit) return all;
    std::vector<std::int64_t> first(
        static_cast<std::size_t>(std::min(*settings_.limit, all->size())));
    std::iota(first.begin(), first.end(), 0);
    return std::make_shared<ls::data::Subset>(all, first);
  }

  Settings settings_;
};

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  std::int64_t epochs = 8;
  std::optional<std::string> logdir;
  std::string precision = "fp32";
  int max_restarts = 0;
  bool quiet = false;
  CLI::App app("Trains with a custom runner.");
  app.add_option("--root", settings.root,
                 "Folder with MNIST's or Fashion-MNIST's files; default: Debian's Fashion-MNIST");
  app.add_option("--epochs", epochs, "Epochs")->capture_default_str();
  app.add_option("--batch-size", settings.batch_size, "Samples in a batch of one worker")
      ->capture_default_str();
  app.add_option("--limit", settings.limit, "Use only the first N samples of each data set")
      ->check(CLI::PositiveNumber);
  app.add_option("--workers", settings.workers,
                 "Processes; default: one per GPU, without GPUs one per core");
  app.add_option("--max-restarts", max_restarts,
                 "How many times workers are made anew after one was lost")
      ->capture_default_str();
  app.add_option("--logdir", logdir, "Folder for logs, checkpoints and summary.json");
  app.add_option("--precision", precision, "Of the forward pass and loss: fp32, bf16, fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_flag("--quiet", quiet, "Show no progress bar");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // a launcher does not start the program again after 2
  }

  ls::manual_seed(42);
  CustomRunner runner(settings);
  const auto result = runner.train(ls::TrainOptions{
      .model = nn::Sequential(nn::Flatten(), nn::Linear(28 * 28, 10)),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = 0.02},
      .num_epochs = epochs,
      .logdir = logdir,
      .valid_loader = "valid",
      .valid_metric = "loss",
      .minimize_valid_metric = true,
      .verbose = !quiet,
      .precision = precision,
      .callbacks = {ls::AccuracyCallback({.num_classes = 10}),
                    ls::PrecisionRecallF1SupportCallback({.num_classes = 10}),
                    ls::AUCCallback({.num_classes = 10})},
      .max_restarts = max_restarts,
  });
  // If a launcher started several processes, each of them reaches this line.
  if (result.rank == 0) {
    const auto& valid = result.best_metrics.at("valid");
    std::cout << fmt::format("Result: epoch {}, loss {:.4f}, accuracy {:.4f}, confidence {:.4f}\n",
                             result.best_epoch, valid.at("loss"), valid.at("accuracy01"),
                             valid.at("confidence"));
  }
} catch (const std::exception& error) {
  std::cerr << "custom_runner: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
