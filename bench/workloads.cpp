#include "bench/workloads.h"

#include <array>
#include <chrono>
#include <cmath>

namespace lockstep::bench {
namespace {

namespace nn = torch::nn;

constexpr std::array<Workload, 8> kWorkloads = {{
    {"A", "Linear(784, 10) on Fashion-MNIST, one epoch", 5, 32, {}, 0.02},
    {"B", "MLP 784-512-256-10 on Fashion-MNIST, one epoch", 3, 64, {}, 1e-3},
    {"C", "CNN of two convolutions on Fashion-MNIST", 3, 64, 200, 1e-3},
    {"D", "Sapsan's 3-D CNN on cubes of 16", 3, 16, 500, 1e-3},
    {"D64", "3-D CNN of 16, 32, 64 channels on cubes of 32", 3, 4, 30, 1e-3},
    {"E", "MLP of 30 layers of width 64", 5, 16, 500, 1e-3},
    {"F", "ResNet-20 on images of 3 x 32 x 32", 3, 32, 30, 1e-4},
    {"G", "GPT of 4 layers of width 128 on 64 tokens", 3, 16, 30, 1e-3},
}};

torch::Generator generator(std::uint64_t seed) {
  auto made = torch::make_generator<torch::CPUGeneratorImpl>(seed);
  return made;
}

// Random fields. The target is the flattened field itself, so that no second copy of it is
// gathered.
class Cubes : public data::Dataset {
 public:
  Cubes(std::int64_t count, std::int64_t side)
      : fields_(torch::rand({count, 3, side, side, side}, generator(1)), torch::zeros({count, 1})) {
  }
  std::int64_t size() const override { return fields_.size(); }
  Batch sample(std::int64_t index) const override { return with_target(fields_.sample(index), 0); }
  Batch gather(std::span<const std::int64_t> indices, Batch reuse) const override {
    return with_target(fields_.gather(indices, std::move(reuse)), 1);
  }

 private:
  static Batch with_target(Batch batch, std::int64_t first) {
    batch.set("targets", batch["features"].flatten(first));
    return batch;
  }
  data::TensorDataset fields_;
};

data::DatasetPtr dataset(std::string_view name) {
  if (name == "D") return std::make_shared<Cubes>(2000, 16);
  if (name == "D64") {
    return std::make_shared<data::TensorDataset>(torch::rand({240, 3, 32, 32, 32}, generator(1)),
                                                 torch::rand({240, 3}, generator(2)));
  }
  if (name == "E") {
    return std::make_shared<data::TensorDataset>(torch::rand({8192, 64}, generator(1)),
                                                 torch::randint(10, {8192}, generator(2)));
  }
  if (name == "F") {
    return std::make_shared<data::TensorDataset>(torch::rand({1024, 3, 32, 32}, generator(1)),
                                                 torch::randint(10, {1024}, generator(2)));
  }
  if (name == "G") {
    // The target of a token is the next one.
    const torch::Tensor tokens = torch::randint(256, {1024, 65}, generator(1), torch::kInt64);
    return std::make_shared<data::TensorDataset>(tokens.narrow(1, 0, 64).contiguous(),
                                                 tokens.narrow(1, 1, 64).contiguous());
  }
  return data::fashion_mnist({.train = true});
}

using Widths = std::vector<std::int64_t>;

Model make_model(std::string_view name) {
  manual_seed(0);
  if (name == "F") {
    return network::ResNet(network::ResNetOptions{.depth = 20, .classes = 10});
  }
  if (name == "G") {
    return network::GPT(network::GPTOptions{
        .vocabulary = 256, .tokens = 64, .width = 128, .layers = 4, .heads = 4});
  }
  if (name == "E") {
    // Without the Flatten that network's MLP begins with, so that results can be compared with
    // those of earlier versions.
    const auto mlp = network::make_mlp({.in = 64, .hidden = Widths(29, 64), .out = 10});
    nn::Sequential model;
    for (auto layer = std::next(mlp->begin()); layer != mlp->end(); ++layer) {
      model->push_back(*layer);
    }
    return model;
  }
  if (name == "A" || name == "B") {
    return network::make_mlp(
        {.in = 784, .hidden = name == "A" ? Widths{} : Widths{512, 256}, .out = 10});
  }
  // Layers are made one after the other, because each layer draws its random weights when it is
  // made, and C++ does not fix the order in which the arguments of a call are evaluated.
  nn::Sequential model;
  if (name == "C") {
    for (const auto& [in, out] : {std::pair(1, 32), std::pair(32, 64)}) {
      model->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
      model->push_back(nn::ReLU());
      model->push_back(nn::MaxPool2d(2));
    }
    model->extend(*network::make_mlp({.in = 3136, .hidden = {128}, .out = 10}));
  } else if (name == "D") {
    const auto conv = [](std::int64_t in, std::int64_t out) {
      return nn::Conv3d(nn::Conv3dOptions(in, out, 2).stride(2).padding(1));
    };
    const auto pool = [](std::int64_t padding) {
      return nn::MaxPool3d(nn::MaxPool3dOptions(2).padding(padding));
    };
    model->push_back(conv(3, 6));
    model->push_back(pool(1));
    model->push_back(nn::ReLU());
    model->push_back(conv(6, 6));
    model->push_back(pool(1));
    model->push_back(nn::ReLU());
    model->push_back(conv(6, 12));
    model->push_back(pool(0));
    model->extend(*network::make_mlp({.in = 12, .hidden = {24}, .out = 12'288}));
  } else {
    for (const auto& [in, out] : {std::pair(3, 16), std::pair(16, 32), std::pair(32, 64)}) {
      model->push_back(nn::Conv3d(nn::Conv3dOptions(in, out, 3).padding(1)));
      model->push_back(nn::ReLU());
      model->push_back(nn::MaxPool3d(2));
    }
    model->extend(*network::make_mlp({.in = 4096, .hidden = {128}, .out = 3}));
  }
  return model;
}

Criterion make_criterion(std::string_view name) {
  if (name.starts_with('D')) return nn::SmoothL1Loss();
  return nn::CrossEntropyLoss();
}

class FirstStep : public Callback {
 public:
  explicit FirstStep(double& seconds) : seconds_(seconds) {}
  CallbackTraits traits() const override { return {.uses_gradients = false}; }
  void on_step(State& state) override {
    if (state.loader_batch > 1) return;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    seconds_ = std::chrono::duration<double>(now).count();
  }

 private:
  double& seconds_;
};

}  // namespace

std::span<const Workload> workloads() {
  return kWorkloads;
}

const Workload& workload(std::string_view name) {
  for (const Workload& one : kWorkloads) {
    if (one.name == name) return one;
  }
  throw ConfigError("workload '{}': expected A, B, C, D, D64, E, F or G", name);
}

WorkResult run_workload(const Workload& workload, const WorkOptions& options) {
  const data::DatasetPtr whole = dataset(workload.name);
  const std::int64_t global_batch = workload.batch_size * options.workers;
  const std::int64_t samples = workload.steps.value_or(whole->size() / global_batch) * global_batch;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i)
    indices[static_cast<std::size_t>(i)] = i % whole->size();
  const auto train = std::make_shared<data::Subset>(whole, std::move(indices));

  std::shared_ptr<Engine> engine;
  if (options.workers == 1) {
    engine =
        std::make_shared<DeviceEngine>(DeviceEngineOptions{.device = torch::kCPU, .threads = 1});
  } else {
    engine = std::make_shared<DistributedDataParallelEngine>(DistributedDataParallelOptions{
        .workers = options.workers, .device = torch::kCPU, .threads = 1});
  }
  WorkResult result;
  SupervisedRunner runner;
  const auto trained = runner.train({
      .model = make_model(workload.name),
      .criterion = make_criterion(workload.name),
      .optimizer = optim::Adam{.lr = workload.lr},
      .loaders = {{"train", {train, {.batch_size = workload.batch_size, .shuffle = true}}}},
      .num_epochs = options.epochs,
      .profile = options.profile,
      .callbacks = {std::make_shared<FirstStep>(result.first_step)},
      .console = options.profile,
      .max_restarts = options.max_restarts,
      .engine = engine,
  });
  result.samples_per_second = trained.train_samples_per_second;
  result.loss = trained.last_metrics.at("train").at("loss");
  double squares = 0;
  for (const auto& [name, parameter] : trained.model.parameters()) {
    squares += parameter.detach().to(torch::kFloat64).square().sum().item<double>();
  }
  result.weights_norm = std::sqrt(squares);
  return result;
}

}  // namespace lockstep::bench
