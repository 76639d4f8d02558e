// A small complete program: data-parallel training by hand, without a runner. It trains a small
// model on random data, and prints the results of every worker and of all workers together.
#include <iostream>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace dist = lockstep::dist;
namespace nn = torch::nn;

namespace {

struct Arguments {
  std::int64_t epochs = 2;
  std::int64_t batch_size = 8;
  std::int64_t n_classes = 4;
  std::int64_t data_size = 32;
  std::int64_t hidden_dim = 32;
  std::optional<int> workers;
};

constexpr std::int64_t kFeatures = 16;

void print_arguments(const Arguments& args, int world_size) {
  const auto show = [](const char* name, std::int64_t value) {
    dist::print_primary("{:<12}: {}", name, value);
  };
  show("epochs", args.epochs);
  show("batch_size", args.batch_size);
  show("n_classes", args.n_classes);
  show("data_size", args.data_size);
  show("hidden_dim", args.hidden_dim);
  show("workers", world_size);
}

// The data is the same on every worker, because all draw it from the same seed.
ls::data::DatasetPtr make_dataset(const Arguments& args) {
  ls::manual_seed(0);
  return std::make_shared<ls::data::TensorDataset>(
      torch::randn({args.data_size, kFeatures}),
      torch::randint(args.n_classes, {args.data_size}, torch::kInt64));
}

// The result of a batch, on this worker or on all workers.
struct Score {
  double loss = 0;           // mean over the samples
  std::int64_t correct = 0;  // samples
  std::int64_t n = 0;        // samples

  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(n); }
};

// The result over all workers, on the primary. It adds sums over samples, not means, because
// batches may have different sizes.
Score total_of(const Score& mine) {
  const auto count = static_cast<double>(mine.n);
  const torch::Tensor sums = dist::reduce(torch::tensor(
      {mine.loss * count, static_cast<double>(mine.correct), count}, torch::kFloat64));
  const double all = sums[2].item<double>();
  return {.loss = sums[0].item<double>() / all,
          .correct = sums[1].item<std::int64_t>(),
          .n = static_cast<std::int64_t>(all)};
}

std::string describe(const Score& score, const torch::Tensor& x) {
  return fmt::format(
      "Device:\t{}\n\tInput: \ttorch.Size([{}])\n\tLoss:  \t{:.5f}\n\tAcc:   \t{:.5f} ({}/{})",
      x.device().str(), fmt::join(x.sizes().begin(), x.sizes().end(), ", "), score.loss,
      score.accuracy(), score.correct, score.n);
}

struct Training {
  dist::DistributedModel model;
  torch::optim::Optimizer& optimizer;
  nn::CrossEntropyLoss criterion;
};

void train(Training& training, ls::data::BatchStream batches, std::int64_t iterations) {
  const torch::Device device = dist::get_device();
  for (std::int64_t it = 0; it < iterations; ++it) {
    training.optimizer.zero_grad();
    Score mine;
    std::string report;
    // If the samples do not divide evenly, some workers have no batch in the last iteration.
    if (auto batch = batches.next()) {
      const auto x = (*batch)["features"].to(device);
      const auto y = (*batch)["targets"].to(device);
      const auto y_hat = training.model(x);
      const auto loss = training.criterion(y_hat, y);
      // Weighted by samples, so that it is the gradient of the mean over all samples.
      training.model.weight(static_cast<double>(y.size(0)));
      loss.backward();  // averages over the workers
      mine = {.loss = loss.item<double>(),
              .correct = y_hat.argmax(1).eq(y).sum().item<std::int64_t>(),
              .n = y.size(0)};
      report = describe(mine, x);
    } else {
      training.model.no_batch();
    }
    training.optimizer.step();

    dist::print_in_order(report);
    const Score total = total_of(mine);
    dist::print_primary("Total - acc: {:.4f} ({}/{}) - loss: {:.4f}", total.accuracy(),
                        total.correct, total.n, total.loss);
  }
}

// Runs on every worker.
void main_worker(int rank, int world_size, const Arguments& args) {
  dist::init_process_group({.rank = rank, .world_size = world_size});
  print_arguments(args, world_size);

  const auto dataset = make_dataset(args);
  // Without padding: a sample that is used twice would count twice in the totals.
  const auto sampler = dist::data_sampler(dataset, {.shuffle = false, .pad = false});
  const ls::data::Loader loader(dataset, {.batch_size = args.batch_size, .sampler = sampler});
  const auto iterations =
      dist::all_reduce(torch::tensor(loader.batches()), dist::ReduceOp::kMax).item<std::int64_t>();

  nn::Sequential model(nn::Linear(kFeatures, args.hidden_dim), nn::ReLU(),
                       nn::Linear(args.hidden_dim, args.n_classes));
  model->to(dist::get_device());
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-4));
  Training training{.model = dist::prepare_ddp_model(model), .optimizer = optimizer};

  for (std::int64_t epoch = 1; epoch <= args.epochs; ++epoch) {
    dist::print_primary("------- Epoch {} - rank {}", epoch, rank);
    train(training, loader.stream({.epoch = epoch}), iterations);
  }
  dist::cleanup();
}

}  // namespace

int main(int argc, char** argv) try {
  Arguments args;
  CLI::App app("Data-parallel training by hand.");
  app.add_option("--epochs", args.epochs, "Epochs")->capture_default_str();
  app.add_option("--batch-size", args.batch_size, "Samples in a batch of one worker")
      ->capture_default_str();
  app.add_option("--n-classes", args.n_classes, "Classes of the random data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--data-size", args.data_size, "Samples of the random data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--hidden-dim", args.hidden_dim, "Width of the hidden layer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--workers", args.workers,
                 "Processes; default: one per GPU, without GPUs one per core");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // a launcher does not start the program again after 2
  }

  dist::launch([&](int rank, int world_size) { main_worker(rank, world_size, args); },
               {.workers = args.workers});
} catch (const std::exception& error) {
  std::cerr << "min_ddp: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
