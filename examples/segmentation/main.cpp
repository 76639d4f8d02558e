// A U-Net learns which pixels of a noisy image belong to a disc, to a square, or to neither. The
// program makes its images itself.
#include <iostream>

#include <lockstep/lockstep.h>

#include "flags.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kSide = 32;    // pixels
constexpr std::int64_t kClasses = 3;  // background, disc, square

// Images with a disc and a square of the same brightness. A target is the class of each pixel.
ls::data::DatasetPtr make_shapes(std::int64_t count, std::uint64_t seed) {
  ls::manual_seed(seed);
  const auto centers = torch::rand({count, 2, 2}) * (kSide - 8) + 4;  // image, shape, coordinate
  const auto radii = torch::rand({count, 2, 1, 1}) * 4 + 4;
  const auto pixels = torch::arange(kSide, torch::kFloat32);
  const auto dy =
      (pixels.view({1, 1, kSide, 1}) - centers.select(2, 0).view({count, 2, 1, 1})).abs();
  const auto dx =
      (pixels.view({1, 1, 1, kSide}) - centers.select(2, 1).view({count, 2, 1, 1})).abs();
  const auto distance = (dy.square() + dx.square()).sqrt();
  const auto is_disc = (distance < radii).select(1, 0);
  const auto is_square = (torch::maximum(dy, dx) < radii).select(1, 1);
  const auto targets = is_disc.to(torch::kInt64).masked_fill(is_square, 2);
  const auto images = (targets > 0) + 0.3 * torch::randn({count, kSide, kSide});
  return ls::data::tensor_dataset({{"features", images.unsqueeze(1)}, {"targets", targets}});
}

}  // namespace

int main(int argc, char** argv) try {
  const Flags flags = read_flags(argc, argv, "Trains a U-Net on images of discs and squares.", 3);

  const auto train = make_shapes(512, 1);
  const auto valid = make_shapes(128, 2);
  ls::Callbacks callbacks = flags.callbacks();
  callbacks.add(ls::PixelAccuracyCallback({.num_classes = kClasses}));
  callbacks.add(ls::IOUCallback({.num_classes = kClasses, .per_class = true}));
  ls::manual_seed(42);
  ls::SupervisedRunner runner;
  const auto result = runner.train(ls::TrainOptions{
      .model = ls::network::UNet(
          ls::network::UNetOptions{.in = 1, .out = kClasses, .width = 8, .depth = 2}),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = 0.01},
      .loaders = {{"train", {train, {.batch_size = 8, .shuffle = true}}},
                  {"valid", {valid, {.batch_size = 32}}}},
      .num_epochs = flags.epochs,
      .logdir = flags.logdir,
      .resume = flags.resume,
      .valid_loader = "valid",
      .valid_metric = "loss",
      .minimize_valid_metric = true,
      .verbose = !flags.quiet,
      .wire = flags.wire,
      .precision = flags.precision,
      .callbacks = callbacks,
      .ddp = true,
      .workers = flags.workers,
      .shards = flags.shards,
      .max_restarts = flags.max_restarts,
  });
  // If a launcher started several processes, each of them reaches this line.
  if (result.rank == 0) {
    const ls::Metrics& metrics = result.last_metrics.at("valid");
    std::cout << fmt::format("Result: {:.3f} of the pixels are right, mean IoU {:.3f}\n",
                             metrics.at("pixel_accuracy"), metrics.at("iou"));
  }
} catch (const std::exception& error) {
  std::cerr << "segmentation: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
