// Trains one of three models on images of handwritten digits (or clothes), with metrics, logs and
// checkpoints.
#include <iostream>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

nn::Sequential make_model(const std::string& kind) {
  if (kind == "linear") return nn::Sequential(nn::Flatten(), nn::Linear(28 * 28, 10));
  if (kind == "mlp") {
    return nn::Sequential(nn::Flatten(), nn::Linear(28 * 28, 512), nn::ReLU(), nn::Linear(512, 256),
                          nn::ReLU(), nn::Linear(256, 10));
  }
  const auto conv = [](int in, int out) {
    return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1));
  };
  return nn::Sequential(conv(1, 32), nn::ReLU(), nn::MaxPool2d(2), conv(32, 64), nn::ReLU(),
                        nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64 * 7 * 7, 128), nn::ReLU(),
                        nn::Dropout(0.25), nn::Linear(128, 10));
}

// Loads the files of MNIST or Fashion-MNIST in `root`; without it, Debian's Fashion-MNIST.
ls::data::DatasetPtr load(const std::optional<std::string>& root, bool train) {
  if (root) return ls::data::mnist({.root = *root, .train = train});
  return ls::data::fashion_mnist({.train = train, .download = true});
}

}  // namespace

int main(int argc, char** argv) try {
  std::optional<std::string> root, logdir, resume;
  std::string kind = "linear", precision = "fp32", wire = "fp32";
  std::int64_t epochs = 8, batch_size = 32, save_every = 0;
  double lr = 0.02;
  std::optional<std::uint64_t> seed;
  std::optional<int> workers, shards;
  std::string backend = "auto";
  int timeout = 300, max_restarts = 0;
  bool quiet = false;

  CLI::App app("Trains on MNIST or Fashion-MNIST.");
  app.add_option("--root", root,
                 "Folder with MNIST's or Fashion-MNIST's files; default: Debian's "
                 "Fashion-MNIST");
  app.add_option("--model", kind, "linear, mlp or cnn")
      ->check(CLI::IsMember({"linear", "mlp", "cnn"}))
      ->capture_default_str();
  app.add_option("--epochs", epochs, "Number of epochs, including those before --resume")
      ->capture_default_str();
  app.add_option("--batch-size", batch_size, "Samples in one shard of a batch")
      ->capture_default_str();
  app.add_option("--lr", lr, "Learning rate of Adam")->capture_default_str();
  app.add_option("--seed", seed, "Seed of weights, order and dropout; default: 42");
  auto* const folder =
      app.add_option("--logdir", logdir, "Folder for logs, checkpoints and summary.json");
  app.add_option("--resume", resume,
                 "Checkpoint to continue from: a path, or last or best in --logdir");
  app.add_option("--save-every", save_every,
                 "Also save last.pth every N batches; 0: only at the "
                 "end of epochs")
      ->needs(folder)
      ->capture_default_str();
  app.add_option("--workers", workers,
                 "Processes that train together; default: one per GPU, else per core");
  app.add_option("--shards", shards,
                 "Parts of every batch; results depend on them, not on the workers; "
                 "default: one per worker");
  app.add_option("--precision", precision, "Of the forward pass and loss: fp32, bf16, fp16")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str();
  app.add_option("--backend", backend,
                 "How workers communicate: shm, gloo, nccl between GPUs, or auto to choose")
      ->capture_default_str();
  app.add_option("--wire", wire,
                 "How gradients are summed and sent: fp32, or bf16 in half the bytes")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--max-restarts", max_restarts,
                 "How many times workers are made anew after one was lost")
      ->capture_default_str();
  app.add_option("--timeout", timeout, "Seconds that a worker waits for other workers")
      ->capture_default_str();
  app.add_flag("--quiet", quiet, "Show no progress bar");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // a launcher does not start the program again after 2
  }

  ls::manual_seed(seed.value_or(42));
  ls::Callbacks callbacks = {
      ls::AccuracyCallback({.input_key = "logits", .target_key = "targets", .num_classes = 10}),
      ls::PrecisionRecallF1SupportCallback({.num_classes = 10}),
      ls::AUCCallback({.num_classes = 10})};
  if (logdir) callbacks.add(ls::CheckpointCallback({.save_every_batches = save_every}));

  ls::SupervisedRunner runner;
  auto result = runner.train(ls::TrainOptions{
      .model = make_model(kind),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = lr},
      .loaders = {{"train", {load(root, true), {.batch_size = batch_size, .shuffle = true}}},
                  {"valid", {load(root, false), {.batch_size = batch_size}}}},
      .seed = seed,
      .hparams = {{"model", kind}},
      .num_epochs = epochs,
      .logdir = logdir,
      .resume = resume,
      .valid_loader = "valid",
      .valid_metric = "loss",
      .minimize_valid_metric = true,
      .verbose = !quiet,
      .wire = wire,
      .precision = precision,
      .callbacks = callbacks,
      .max_restarts = max_restarts,
      .engine = std::make_shared<ls::DistributedDataParallelEngine>(
          ls::DistributedDataParallelOptions{.workers = workers,
                                             .shards = shards,
                                             .backend = backend,
                                             .timeout = std::chrono::seconds(timeout)}),
  });
  if (result.rank == 0) std::cout << result.best_metric << '\n';
} catch (const std::exception& error) {
  std::cerr << "mnist: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
