// A network with two inputs and two outputs: an image and a vector go in, a class and an angle come
// out. Each output has its own criterion.
//
// The images show one of three patterns of stripes, shifted by a phase. The vector has the
// brightness of the image and an offset; the angle is the sum of phase and offset. So the network
// needs both inputs.
#include <iostream>

#include <lockstep/lockstep.h>

#include "flags.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kSide = 12;

ls::data::DatasetPtr make_data(std::int64_t count, std::uint64_t seed) {
  ls::manual_seed(seed);
  const auto label = torch::randint(0, 3, {count}, torch::kInt64);
  const auto phase = torch::rand({count, 1, 1}) * 1.5;
  const auto vector = torch::stack({torch::rand({count}) + 0.5, torch::rand({count}) - 0.5}, 1);
  const auto rows =
      torch::arange(kSide, torch::kFloat32).view({1, kSide, 1}).expand({1, -1, kSide});
  const auto columns = rows.transpose(1, 2);
  const auto which = label.view({count, 1, 1});
  // Stripes along rows, along columns, and along the diagonal.
  const auto direction =
      torch::where(which == 0, rows, torch::where(which == 1, columns, rows + columns));
  const auto brightness = vector.select(1, 0).view({count, 1, 1});
  const auto image =
      brightness * torch::sin(direction + phase) + 0.1 * torch::randn({count, kSide, kSide});
  const auto angle = phase.view({count, 1}) + vector.select(1, 1).view({count, 1});
  return ls::data::tensor_dataset(
      {{"image", image.unsqueeze(1)}, {"vector", vector}, {"label", label}, {"true_angle", angle}});
}

struct TwoInputsImpl : nn::Module {
  TwoInputsImpl() {
    images = register_module(
        "images", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 5).padding(2)), nn::ReLU(),
                                 nn::MaxPool2d(2), nn::Flatten(),
                                 nn::Linear(16 * kSide * kSide / 4, 64), nn::ReLU()));
    both = register_module("both", nn::Linear(64 + 2, 64));
    classes = register_module("classes", nn::Linear(64, 3));
    angle = register_module("angle", nn::Linear(64, 1));
  }

  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& image,
                                                   const torch::Tensor& vector) {
    const auto hidden = both(torch::cat({images->forward(image), vector}, 1)).relu();
    return {classes(hidden), angle(hidden)};
  }

  nn::Sequential images = nullptr;
  nn::Linear both = nullptr, classes = nullptr, angle = nullptr;
};
TORCH_MODULE(TwoInputs);

}  // namespace

int main(int argc, char** argv) try {
  const Flags flags =
      read_flags(argc, argv, "Trains a network with two inputs and two outputs.", 10);

  const auto train = make_data(2000, 1), valid = make_data(400, 2);
  ls::manual_seed(42);
  ls::Callbacks callbacks = flags.callbacks();
  callbacks.add(
      ls::AccuracyCallback({.input_key = "class", .target_key = "label", .num_classes = 3}));
  ls::SupervisedRunner runner(
      {.input_keys = {"image", "vector"},
       .output_keys = {"class", "angle"},
       .losses = {{.criterion = "cross_entropy", .output = "class", .target = "label"},
                  {.criterion = "l1", .output = "angle", .target = "true_angle", .weight = 2}}});
  const auto result = runner.train(ls::TrainOptions{
      .model = TwoInputs(),
      .criterions = {{"cross_entropy", nn::CrossEntropyLoss()}, {"l1", nn::L1Loss()}},
      .optimizer = ls::optim::Adam{.lr = 2e-3},
      .loaders = {{"train", {train, {.shuffle = true, .global_batch_size = 64}}},
                  {"valid", {valid, {.global_batch_size = 200}}}},
      .num_epochs = flags.epochs,
      .logdir = flags.logdir,
      .resume = flags.resume,
      .valid_loader = "valid",
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
    const auto& metrics = result.last_metrics.at("valid");
    std::cout << fmt::format("Result: accuracy {:.4f}, error of the angle {:.4f}\n",
                             metrics.at("accuracy01"), metrics.at("loss/angle"));
  }
} catch (const std::exception& error) {
  std::cerr << "two_inputs: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
