// Trains with one process per node, started by hand on each node. Custom callbacks keep the models
// of the nodes equal. First make a secret on one node and copy it to the other:
//
//   (umask 077; openssl rand -hex 32 > ~/.lockstep-token)
//   scp -p ~/.lockstep-token othernode:
//
// Then start the program on both nodes. 10.0.0.1 is the address of the node with rank 0:
//
//   two_nodes --world-size 2 --rank 0 --host 10.0.0.1 --token-file ~/.lockstep-token   on that node
//   two_nodes --world-size 2 --rank 1 --host 10.0.0.1 --token-file ~/.lockstep-token   on the other
//
// For the runner on each node, the run has a single process. (A DistributedDataParallelEngine does
// all this by itself; this example shows how it can be done by hand.)
#include <filesystem>
#include <iostream>
#include <numeric>

#include <CLI/CLI.hpp>
#include <lockstep/lockstep.h>
#include <unistd.h>

namespace ls = lockstep;
namespace dist = lockstep::dist;
namespace nn = torch::nn;

namespace {

// The nodes start with the mean of their random weights.
struct SyncModel : ls::Callback {
  void on_run_start(ls::State& state) override {
    for (const auto& [name, parameter] : state.model.parameters()) {
      dist::all_reduce(parameter, dist::ReduceOp::kMean);
    }
  }
};

// All nodes make the same updates, with the mean of their gradients.
struct AverageGradients : ls::Callback {
  void on_backward(ls::State& state) override {
    for (const auto& [name, parameter] : state.model.parameters()) {
      dist::all_reduce(parameter.grad(), dist::ReduceOp::kMean);
    }
  }
};

struct Flatten : ls::Callback {
  void on_batch_start(ls::State& state) override {
    state.batch.set("features", state.batch["features"].flatten(1));
  }
};

struct Arguments {
  std::string host;
  int port = 29500;
  std::optional<std::filesystem::path> token_file;
  std::string interface;
  int rank = 0;
  int world_size = 2;
  std::int64_t epochs = 10;
  std::optional<std::string> root;
  std::optional<std::int64_t> limit;
};

// Loads the files of MNIST or Fashion-MNIST in `root`; without it, Debian's Fashion-MNIST.
ls::data::DatasetPtr load(const Arguments& args, bool train) {
  const auto transform = ls::data::Compose(
      {ls::data::ToTensor(), ls::data::Normalize({.mean = {0.1307}, .std = {0.3081}})});
  const auto all =
      args.root
          ? ls::data::mnist({.root = *args.root, .train = train, .transform = transform})
          : ls::data::fashion_mnist({.train = train, .download = true, .transform = transform});
  if (!args.limit) return all;
  std::vector<std::int64_t> first(static_cast<std::size_t>(std::min(*args.limit, all->size())));
  std::iota(first.begin(), first.end(), 0);
  return std::make_shared<ls::data::Subset>(all, first);
}

std::string node_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string first_parameter(const ls::Model& model) {
  const auto parameters = model.parameters();
  const auto& [name, tensor] = parameters.front();
  const torch::Tensor start = tensor.detach().flatten().narrow(0, 0, 4).contiguous();
  const auto* values = start.data_ptr<float>();
  return fmt::format("{} [{}] {:.6f}, ...", name,
                     fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "),
                     fmt::join(values, values + start.numel(), ", "));
}

void worker(const Arguments& args) {
  dist::init_process_group({.rank = args.rank,
                            .world_size = args.world_size,
                            .backend = "gloo",
                            .address = args.host,
                            .port = args.port,
                            .token_file = args.token_file,
                            .interface = args.interface});
  std::cout << fmt::format("Rank and node: {}-{}\n", args.rank, node_name()) << std::flush;

  const auto train = load(args, true);
  const auto test = load(args, false);
  // For training, padding gives all nodes the same number of batches; otherwise a node would wait
  // for gradients that the other nodes never send. For testing, each sample is used once.
  const ls::data::Loader test_loader(
      test, {.batch_size = 128, .sampler = dist::data_sampler(test, {.pad = false})});

  ls::manual_seed(42 + static_cast<std::uint64_t>(args.rank));
  ls::SupervisedRunner runner;
  const auto result = runner.train(ls::TrainOptions{
      .model = nn::Sequential(nn::Linear(784, 100), nn::ReLU(), nn::Linear(100, 10)),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::SGD{.lr = 1e-3},
      .loaders = {{"train", {train, {.batch_size = 128, .sampler = dist::data_sampler(train)}}},
                  {"test", test_loader}},
      .num_epochs = args.epochs,
      .callbacks = {SyncModel(), AverageGradients(), Flatten(),
                    ls::AccuracyCallback({.num_classes = 10})},
      .console = dist::is_primary(),  // it shows metrics of the primary's samples only
      .engine = std::make_shared<ls::DeviceEngine>(),
  });

  const auto samples = static_cast<double>(test_loader.samples());
  const double accuracy = result.last_metrics.at("test").at("accuracy01");
  const auto sums = dist::reduce(torch::tensor({accuracy * samples, samples}, torch::kFloat64));
  dist::print_primary("Test accuracy of all nodes: {:.4f} ({:.0f}/{:.0f})",
                      (sums[0] / sums[1]).item<double>(), sums[0].item<double>(),
                      sums[1].item<double>());
  std::cout << "Model hash: " << ls::weights_hash(result.model.weights()) << '\n'
            << "First parameter: " << first_parameter(result.model) << '\n';
  dist::cleanup();
}

}  // namespace

int main(int argc, char** argv) try {
  Arguments args;
  CLI::App app("Trains on several nodes, one process on each.");
  app.add_option("--host,--master-addr,--master,-m", args.host, "Address of the node with rank 0")
      ->required();
  app.add_option("--rank,-r", args.rank, "Rank of this process")->required();
  app.add_option("--world-size", args.world_size, "Processes on all nodes")->capture_default_str();
  app.add_option("--port", args.port, "Port on which rank 0 listens")->capture_default_str();
  // The secret itself is not an option, because every user of the machine can read a program's
  // arguments.
  app.add_option(
      "--token-file", args.token_file,
      "File with the run's secret, which only its owner may read; default: LOCKSTEP_TOKEN "
      "or the file that LOCKSTEP_TOKEN_FILE names");
  app.add_option("--interface", args.interface,
                 "Network interface or address of this node; default: all, or LOCKSTEP_INTERFACE");
  app.add_option("--epochs", args.epochs, "Epochs")->capture_default_str();
  app.add_option("--root", args.root,
                 "Folder with MNIST's or Fashion-MNIST's files; default: Debian's Fashion-MNIST");
  app.add_option("--limit", args.limit, "Use only the first N samples of each data set")
      ->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // a launcher does not start the program again after 2
  }
  worker(args);
  std::cout << "done\n";
} catch (const std::exception& error) {
  dist::abort(ls::message_of(error));  // otherwise the other nodes would wait for this one
  std::cerr << "two_nodes: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
