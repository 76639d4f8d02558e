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
  torch::manual_seed(seed);
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

// Adds the share of pixels whose class is right. All images have the same number of pixels, so the
// mean over images is the mean over pixels.
class SegmentationRunner : public ls::SupervisedRunner {
 public:
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>{"accuracy"};
  }

 protected:
  void handle_batch(ls::State& state) override {
    ls::SupervisedRunner::handle_batch(state);
    const auto is_right = state.batch["logits"].detach().argmax(1) == state.batch["targets"];
    state.batch_metrics["accuracy"] = is_right.to(torch::kFloat64).mean().item<double>();
  }
};

// Intersection over union of each class, over all pixels of the loader; the mean over the classes.
double mean_iou(SegmentationRunner& runner, const ls::data::Loader& loader) {
  std::vector<torch::Tensor> classes, targets;
  for (const ls::Batch& batch : runner.predict_loader({.loader = loader})) {
    classes.push_back(batch["logits"].argmax(1));
  }
  for (std::int64_t i = 0; i < loader.dataset()->size(); ++i) {
    targets.push_back(loader.dataset()->sample(i)["targets"]);
  }
  const auto found = torch::cat(classes), expected = torch::stack(targets);
  double sum = 0;
  for (std::int64_t k = 0; k < kClasses; ++k) {
    const auto both = ((found == k) & (expected == k)).sum().item<double>();
    sum += both / ((found == k) | (expected == k)).sum().item<double>();
  }
  return sum / kClasses;
}

}  // namespace

int main(int argc, char** argv) try {
  const Flags flags = read_flags(argc, argv, "Trains a U-Net on images of discs and squares.", 3);

  const auto train = make_shapes(512, 1);
  const ls::data::Loader valid = {make_shapes(128, 2), {.batch_size = 32}};
  torch::manual_seed(42);
  SegmentationRunner runner;
  const auto result = runner.train(ls::TrainOptions{
      .model = ls::network::UNet(
          ls::network::UNetOptions{.in = 1, .out = kClasses, .width = 8, .depth = 2}),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = 0.01},
      .loaders = {{"train", {train, {.batch_size = 8, .shuffle = true}}}, {"valid", valid}},
      .num_epochs = flags.epochs,
      .logdir = flags.logdir,
      .resume = flags.resume,
      .valid_loader = "valid",
      .valid_metric = "loss",
      .minimize_valid_metric = true,
      .verbose = !flags.quiet,
      .callbacks = flags.callbacks(),
      .ddp = true,
      .workers = flags.workers,
      .shards = flags.shards,
      .max_restarts = flags.max_restarts,
  });
  // If a launcher started several processes, each of them reaches this line.
  if (result.rank == 0) {
    std::cout << fmt::format("Result: {:.3f} of the pixels are right, mean IoU {:.3f}\n",
                             result.last_metrics.at("valid").at("accuracy"),
                             mean_iou(runner, valid));
  }
} catch (const std::exception& error) {
  std::cerr << "segmentation: " << ls::message_of(error) << '\n';
  return 1;
}
