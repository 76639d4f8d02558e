// Trains two networks against each other. The runner and the data are in gan.h.
#include <iostream>

#include <lockstep/lockstep.h>

#include "flags.h"
#include "gan.h"

namespace nn = torch::nn;

namespace {

nn::Sequential make_generator() {
  return nn::Sequential(nn::Linear(kNoise, 64), nn::BatchNorm1d(64), nn::ReLU(), nn::Linear(64, 64),
                        nn::BatchNorm1d(64), nn::ReLU(), nn::Linear(64, 2));
}

nn::Sequential make_discriminator() {
  const auto leaky = [] { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); };
  return nn::Sequential(nn::Linear(2, 64), leaky(), nn::Linear(64, 64), leaky(), nn::Linear(64, 1));
}

// How many of the generator's points are near a blob, and how many blobs have such points.
struct Quality {
  double near = 0;
  std::int64_t blobs = 0;
};

Quality quality(const ls::Model& generator) {
  constexpr std::int64_t kPoints = 2000;
  const torch::NoGradGuard no_grad;
  lockstep::manual_seed(1);
  // After a training on a GPU, the generator is there.
  const auto options = generator.parameters().front().second.options();
  const auto points = generator(torch::randn({kPoints, kNoise}, options)).cpu();
  const auto distances = torch::cdist(points, centers());
  const auto [distance, blob] = distances.min(1);
  const auto near = distance < 0.5;
  const auto counts = torch::bincount(blob.masked_select(near), {}, kBlobs);
  return {.near = near.to(torch::kDouble).mean().item<double>(),
          .blobs = (counts >= kPoints / 50).sum().item<std::int64_t>()};
}

}  // namespace

int main(int argc, char** argv) try {
  std::optional<std::string> backend, timeout;
  const Flags flags = read_flags(
      argc, argv, "Trains a generator and a discriminator.", 40,
      {{"--backend",
        "How workers communicate: shm, gloo, nccl between GPUs, or auto to choose; default: auto",
        backend},
       {"--timeout", "Seconds that a worker waits for other workers; default: 300", timeout}});

  lockstep::manual_seed(42);
  const auto data = real_points(4096);
  const auto generator = make_generator();
  const auto discriminator = make_discriminator();

  const auto result = Gan().train(ls::TrainOptions{
      .models = {{"generator", generator}, {"discriminator", discriminator}},
      .optimizers = {{"generator", ls::optim::Adam{.lr = 1e-3, .beta1 = 0.5}},
                     {"discriminator", ls::optim::Adam{.lr = 1e-3, .beta1 = 0.5}}},
      .phases = {"discriminator", "generator"},
      .loaders = {{"train", {data, {.shuffle = true, .global_batch_size = 128}}}},
      .num_epochs = flags.epochs,
      .logdir = flags.logdir,
      .resume = flags.resume,
      .verbose = !flags.quiet,
      .wire = flags.wire,
      .precision = flags.precision,
      .callbacks = flags.callbacks(),
      .max_restarts = flags.max_restarts,
      .engine =
          std::make_shared<ls::DistributedDataParallelEngine>(ls::DistributedDataParallelOptions{
              .workers = flags.workers,
              .shards = flags.shards,
              .backend = backend.value_or("auto"),
              .timeout = std::chrono::seconds(timeout ? std::stoi(*timeout) : 300)}),
  });
  // If a launcher started several processes, each of them reaches this line.
  if (result.rank == 0) {
    const Quality found = quality(generator);
    std::cout << fmt::format("Result: {:.2f} of the points are near a blob, {} of {} blobs\n",
                             found.near, found.blobs, kBlobs);
  }
} catch (const std::exception& error) {
  std::cerr << "gan: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
