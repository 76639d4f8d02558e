#include "bench/micro.h"

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>

#include <lockstep/lockstep.h>
#include <malloc.h>

#include "bench/median.h"
#include "tests/support/allocated_peak.h"

namespace lockstep::bench {
namespace {

namespace nn = torch::nn;

constexpr int kMicroRounds = 21;

// Median seconds of one call.
template <typename Action>
double median_time_of(int calls, const Action& action) {
  std::vector<double> rounds;
  for (int round = -1; round < kMicroRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) action();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (round >= 0) rounds.push_back(seconds.count() / calls);
  }
  return median(rounds);
}

nn::Sequential make_mlp() {
  manual_seed(0);
  nn::Sequential mlp(nn::Linear(784, 512), nn::Linear(512, 256), nn::Linear(256, 10));
  for (auto& parameter : mlp->parameters()) {
    parameter.mutable_grad() = torch::rand_like(parameter);
  }
  return mlp;
}

NamedTensors parameters_of(const nn::Sequential& module) {
  NamedTensors named;
  for (const auto& item : module->named_parameters()) named.emplace_back(item.key(), item.value());
  return named;
}

struct Pair {
  std::string_view name;
  optim::OptimizerSpec fused;
  optim::OptimizerSpec torch;
};

template <typename T, typename Options>
optim::OptimizerSpec torch_optimizer(const Options& options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<T>(std::move(parameters), options);
  };
}

// Seconds of one step. It includes setting the gradients to zero, as in training.
double time_of_step(const optim::OptimizerSpec& spec) {
  const nn::Sequential mlp = make_mlp();
  optim::FlatParameters flat(parameters_of(mlp));
  const auto optimizer = spec.make(flat);
  return median_time_of(20, [&] { optimizer->step(); });
}

}  // namespace

nlohmann::json run_optimizers() {
  torch::set_num_threads(1);
  namespace to = torch::optim;
  const std::vector<Pair> pairs = {
      {"sgd", optim::SGD{.lr = 1e-3, .momentum = 0.9},
       torch_optimizer<to::SGD>(to::SGDOptions(1e-3).momentum(0.9))},
      {"adam", optim::Adam{.lr = 1e-3}, torch_optimizer<to::Adam>(to::AdamOptions(1e-3))},
      {"adamw", optim::AdamW{.lr = 1e-3}, torch_optimizer<to::AdamW>(to::AdamWOptions(1e-3))},
      {"rmsprop", optim::RMSprop{.lr = 1e-3},
       torch_optimizer<to::RMSprop>(to::RMSpropOptions(1e-3))},
      {"adagrad", optim::Adagrad{.lr = 1e-3},
       torch_optimizer<to::Adagrad>(to::AdagradOptions(1e-3))},
  };
  fmt::print("\na step of 535,818 parameters in 6 tensors, one thread, {} rounds\n\n",
             kMicroRounds);
  fmt::print("{:<12} {:>12} {:>12} {:>8}\n", "", "fused us", "torch us", "ratio");
  nlohmann::json json;
  for (const Pair& pair : pairs) {
    const double fused = time_of_step(pair.fused);
    const double torch = time_of_step(pair.torch);
    fmt::print("{:<12} {:>12.1f} {:>12.1f} {:>8.1f}\n", pair.name, 1e6 * fused, 1e6 * torch,
               torch / fused);
    json[std::string(pair.name)] = {
        {"fused_seconds", fused}, {"torch_seconds", torch}, {"ratio", torch / fused}};
  }
  return json;
}

namespace {

// Saves at every second batch, and measures how long each save keeps the loop. Files are finished
// outside of the measured time, because a save that is due before the last one is written waits for
// it.
class TimedSaves : public Callback {
 public:
  explicit TimedSaves(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void on_run_start(State& state) override {
    series_ = &state.checkpointer->open({.folder = folder_, .save_every_batches = 2}, {});
  }
  void on_step(State& state) override {
    const auto start = std::chrono::steady_clock::now();
    series_->after_step();
    const auto begun = std::chrono::steady_clock::now();
    series_->finish_writing();
    const auto end = std::chrono::steady_clock::now();
    if (state.loader_batch % 2 != 0) return;
    stalls.push_back(std::chrono::duration<double>(begun - start).count());
    writes.push_back(std::chrono::duration<double>(end - begun).count());
  }

  std::vector<double> stalls;  // in seconds
  std::vector<double> writes;  // until the file is there

 private:
  std::filesystem::path folder_;
  CheckpointSeries* series_ = nullptr;
};

}  // namespace

nlohmann::json run_saves() {
  constexpr std::int64_t kWidth = 5000;  // 25,005,000 parameters
  const TemporaryDirectory folder;
  manual_seed(0);
  const auto features = torch::randn({4 * (kMicroRounds + 1), kWidth});
  auto saves = std::make_shared<TimedSaves>(folder.path());
  TrainOptions options;
  options.model = nn::Linear(kWidth, kWidth);
  options.criterion = nn::MSELoss();
  options.optimizer = optim::Adam{.lr = 1e-3};
  options.loaders = {
      {"train", {std::make_shared<data::TensorDataset>(features, features), {.batch_size = 2}}}};
  options.num_epochs = 1;
  options.console = false;
  options.callbacks = {saves};
  SupervisedRunner().train(options);

  const std::size_t bytes = 3 * sizeof(float) * (kWidth * kWidth + kWidth);
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 2);
  const double copy = median_time_of(1, [&] { std::memcpy(to.data(), from.data(), from.size()); });
  const double first = saves->stalls.front();
  saves->stalls.erase(saves->stalls.begin());
  const double stall = median(saves->stalls);
  const double write = median(saves->writes);
  fmt::print("\na save of {:.0f} MB, {} rounds\n\n", 1e-6 * static_cast<double>(bytes),
             kMicroRounds);
  fmt::print(
      "stall {:.1f} ms (the first one {:.1f} ms), memcpy {:.1f} ms, ratio {:.2f}; "
      "written beside training in {:.0f} ms\n",
      1e3 * stall, 1e3 * first, 1e3 * copy, stall / copy, 1e3 * write);
  return {{"stall_seconds", stall},
          {"first_stall_seconds", first},
          {"memcpy_seconds", copy},
          {"write_seconds", write},
          {"ratio", stall / copy}};
}

namespace {

// The value of a line of /proc/self/status, in MB.
double status_megabytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stod(line.substr(name.size())) / 1024;
  }
  throw Error("/proc/self/status: expected a line '{}', got none", name);
}

struct StepCost {
  double allocated = 0;  // by LibTorch's allocator: the peak in MB above what is in use before
  double resident =
      0;  // the same of the process, which includes what libraries use and glibc keeps
  double seconds = 0;
  std::string hash;  // of the gradients
};

StepCost cost_of_step(bool checkpoint_activations, std::int64_t side) {
  manual_seed(0);
  network::UNet model(network::UNetOptions{.dimensions = 3,
                                           .in = 1,
                                           .out = 2,
                                           .width = 16,
                                           .depth = 3,
                                           .norm = network::UNetNorm::kBatch,
                                           .checkpoint_activations = checkpoint_activations});
  const torch::Tensor input = torch::randn({1, 1, side, side, side});
  const auto step = [&] {
    model->zero_grad();
    model->forward(input).square().mean().backward();
  };
  step();  // gradients, and memory that libraries keep
  StepCost cost{.allocated = static_cast<double>(allocated_peak_of(step)) / (1 << 20)};
  ::malloc_trim(0);
  const double before = status_megabytes("VmRSS:");
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak is measured from now on
  step();
  cost.resident = status_megabytes("VmHWM:") - before;
  constexpr int kSteps = 5;
  std::vector<double> times;
  for (int i = 0; i < kSteps; ++i) {
    const auto start = std::chrono::steady_clock::now();
    step();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  cost.seconds = median(times);
  NamedTensors gradients;
  for (const auto& item : model->named_parameters()) {
    gradients.emplace_back(item.key(), item.value().grad());
  }
  for (const auto& item : model->named_buffers()) gradients.emplace_back(item.key(), item.value());
  cost.hash = weights_hash(gradients);
  return cost;
}

}  // namespace

nlohmann::json run_activations() {
  torch::set_num_threads(1);
  fmt::print("\na step of a 3-D U-Net (width 16, depth 3, batch norm), one thread\n\n");
  nlohmann::json all = nlohmann::json::array();
  for (const std::int64_t side : {32, 64}) {
    const StepCost kept = cost_of_step(false, side);
    const StepCost again = cost_of_step(true, side);
    if (kept.hash != again.hash) {
      throw Error("activations: expected the gradients {} of a step that keeps them, got {}",
                  kept.hash, again.hash);
    }
    fmt::print(
        "{0} x {0} x {0}: kept {1:.0f} MB (process {2:.0f} MB), {3:.2f} s; computed again {4:.0f} "
        "MB (process {5:.0f} MB), {6:.2f} s; {7:.2f} of the memory, {8:.2f} times the time\n",
        side, kept.allocated, kept.resident, kept.seconds, again.allocated, again.resident,
        again.seconds, again.allocated / kept.allocated, again.seconds / kept.seconds);
    all.push_back({{"side", side},
                   {"kept_megabytes", kept.allocated},
                   {"kept_resident_megabytes", kept.resident},
                   {"kept_seconds", kept.seconds},
                   {"again_megabytes", again.allocated},
                   {"again_resident_megabytes", again.resident},
                   {"again_seconds", again.seconds}});
  }
  return all;
}

nlohmann::json run_gather() {
  torch::set_num_threads(1);
  constexpr std::int64_t kBatch = 64;
  const auto images = data::fashion_mnist({.train = true});
  const std::vector<std::int64_t> order = data::permutation(images->size(), 1);
  const Batch whole = images->gather(order, {});
  const torch::Tensor indices = torch::tensor(order);
  std::int64_t at = 0;
  const auto next = [&] { return at = (at + kBatch) % (images->size() - kBatch); };

  Batch batch;
  const double fused = median_time_of(500, [&] {
    const auto picked = std::span(order).subspan(static_cast<std::size_t>(next()), kBatch);
    batch = images->gather(picked, std::move(batch));
  });
  const double torch = median_time_of(500, [&] {
    const torch::Tensor picked = indices.narrow(0, next(), kBatch);
    whole["features"].index_select(0, picked);
    whole["targets"].index_select(0, picked);
  });
  fmt::print("\na batch of {} images of 28 x 28, one thread, {} rounds\n\n", kBatch, kMicroRounds);
  fmt::print("bytes, converted: {:.1f} us; floats by index_select: {:.1f} us; ratio {:.1f}\n",
             1e6 * fused, 1e6 * torch, torch / fused);
  return {{"fused_seconds", fused}, {"torch_seconds", torch}, {"ratio", torch / fused}};
}

}  // namespace lockstep::bench
