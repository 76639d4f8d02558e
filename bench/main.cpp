// The seed's workload (Flatten, Linear(784, 10), cross entropy, Adam, batch 32, one epoch of
// Fashion-MNIST, one process, one thread), three ways: Lockstep's runner, a LibTorch loop written
// by hand, and a PyTorch loop. They take turns, so that a machine that slows down slows all of
// them.
#include <array>
#include <chrono>
#include <cstdio>
#include <iostream>

#include <lockstep/lockstep.h>
#include <nlohmann/json.hpp>

#include "bench/collectives.h"
#include "lockstep/base/file.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

constexpr int kRounds = 7;
constexpr std::int64_t kBatch = 32;
constexpr double kLr = 0.02;

struct Measured {
  double samples_per_second = 0;
  double loss = 0;  // the mean over the epoch: all three must have done the same work
};

nn::Sequential make_model() {
  torch::manual_seed(0);
  return nn::Sequential(nn::Flatten(), nn::Linear(28 * 28, 10));
}

Measured run_lockstep(const ls::data::DatasetPtr& train) {
  const auto start = std::chrono::steady_clock::now();
  ls::SupervisedRunner runner;
  const auto result = runner.train({
      .model = make_model(),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = kLr},
      .loaders = {{"train", {train, {.batch_size = kBatch, .shuffle = true}}}},
      .console = false,
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {static_cast<double>(train->size()) / seconds.count(),
          result.last_metrics.at("train").at("loss")};
}

// What a good engineer writes without Lockstep: preloaded floats, index_select, torch::optim.
Measured run_bare(const torch::Tensor& images, const torch::Tensor& labels) {
  const auto start = std::chrono::steady_clock::now();
  auto model = make_model();
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(kLr));
  const std::int64_t count = images.size(0);
  // The order that Lockstep's loader has with seed 42 in epoch 1.
  const auto order = ls::data::permutation(count, 42 + 1);
  const auto indices = torch::tensor(order);
  double total = 0;
  for (std::int64_t at = 0; at < count; at += kBatch) {
    const std::int64_t size = std::min(kBatch, count - at);
    const auto batch = indices.narrow(0, at, size);
    const auto loss = torch::cross_entropy_loss(model->forward(images.index_select(0, batch)),
                                                labels.index_select(0, batch));
    adam.zero_grad();
    loss.backward();
    adam.step();
    total += loss.item<double>() * static_cast<double>(size);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return {static_cast<double>(count) / seconds.count(), total / static_cast<double>(count)};
}

Measured run_pytorch() {
  const std::string command =
      std::string("/usr/bin/python3 ") + LOCKSTEP_BENCH_FOLDER + "/pytorch_linear.py";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::string output;
  std::array<char, 256> chunk;
  while (const std::size_t n = fread(chunk.data(), 1, chunk.size(), pipe.get())) {
    output.append(chunk.data(), n);
  }
  if (output.empty()) {
    throw ls::Error("{} printed nothing: is python3-torch installed? scripts/bootstrap bench",
                    command);
  }
  const auto json = nlohmann::json::parse(output);
  return {json.at("samples_per_second"), json.at("loss")};
}

struct Series {
  std::string name;
  std::function<Measured()> run;
  std::vector<double> speeds;
  double loss = 0;

  double median() const { return sorted()[speeds.size() / 2]; }
  double spread() const { return (sorted().back() - sorted().front()) / median(); }
  std::vector<double> sorted() const {
    auto copy = speeds;
    std::ranges::sort(copy);
    return copy;
  }
};

// False where the contestants did not do the same work.
bool run_one_process(nlohmann::json& json) {
  torch::set_num_threads(1);
  const auto train = ls::data::fashion_mnist({.train = true});
  std::vector<std::int64_t> all(static_cast<std::size_t>(train->size()));
  std::iota(all.begin(), all.end(), 0);
  const auto whole = train->gather(all, {});

  std::array<Series, 3> series = {
      Series{"lockstep", [&] { return run_lockstep(train); }, {}, 0},
      Series{
          "libtorch by hand", [&] { return run_bare(whole["features"], whole["targets"]); }, {}, 0},
      Series{"pytorch", run_pytorch, {}, 0}};
  for (int round = 0; round < kRounds; ++round) {
    for (auto& one : series) {
      const Measured measured = one.run();
      one.speeds.push_back(measured.samples_per_second);
      one.loss = measured.loss;
    }
    std::cerr << "round " << round + 1 << " of " << kRounds << '\n';
  }

  fmt::print("Flatten, Linear(784, 10), Adam, batch {}, one epoch, one thread; {} rounds\n\n",
             kBatch, kRounds);
  fmt::print("{:<18} {:>14} {:>8} {:>10} {:>22}\n", "", "samples/s", "spread", "loss",
             "lockstep time / this");
  for (const auto& one : series) {
    const double ratio = one.median() / series[0].median();
    fmt::print("{:<18} {:>14} {:>7.0f}% {:>10.5f} {:>22.2f}\n", one.name,
               ls::with_thousands(std::llround(one.median())), 100 * one.spread(), one.loss, ratio);
    json["one_process"][one.name] = {
        {"samples_per_second", one.median()}, {"loss", one.loss}, {"time_ratio", ratio}};
  }
  for (const auto& one : series) {
    if (std::abs(one.loss - series[0].loss) > 1e-3 * series[0].loss) {
      fmt::print(stderr, "bench: {} reached a loss of {}, lockstep of {}: not the same work\n",
                 one.name, one.loss, series[0].loss);
      return false;
    }
  }
  return true;
}

}  // namespace

// lockstep_bench [file] [part]: all parts, or the one that is named; the others keep what the file
// says of them.
int main(int argc, char** argv) try {
  const std::string output = argc > 1 ? argv[1] : "build/bench.json";
  const std::string part = argc > 2 ? argv[2] : "";
  nlohmann::json json;
  if (!part.empty() && std::filesystem::exists(output)) {
    json = nlohmann::json::parse(ls::read_file(output));
  }
  bool fair = true;
  if (part.empty() || part == "collectives") json["collectives"] = ls::bench::run_collectives();
  if (part.empty() || part == "one_process") fair = run_one_process(json);
  ls::write_file_atomically(output, json.dump(2) + "\n");
  fmt::print("\nwritten to {}\n", output);
  return fair ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "bench: " << error.what() << '\n';
  return 1;
}
