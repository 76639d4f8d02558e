// Fine-tuning: a network that Python trained to see the direction of stripes learns another task
// from few images. The file has half precision and another head. For two epochs only the new head
// is trained, and batch norm keeps the statistics of the file. Then all is trained, the backbone
// with a tenth of the learning rate.
#include <cmath>
#include <iostream>

#include <lockstep/lockstep.h>

#include "flags.h"

namespace ls = lockstep;
namespace nn = torch::nn;

namespace {

constexpr std::int64_t kSide = 16;  // pixels
constexpr std::int64_t kClasses = 3;

// Noisy images of stripes in any direction, of crossed stripes and of rings. A target is the kind.
ls::data::DatasetPtr patterns(std::int64_t count) {
  const auto one_each = [&] { return torch::rand({count, 1, 1}); };
  const auto pixels = torch::arange(static_cast<double>(kSide), torch::kFloat32);
  const auto rows = pixels.view({1, kSide, 1}), columns = pixels.view({1, 1, kSide});
  const auto angle = one_each() * M_PI, frequency = 0.7 + 0.5 * one_each();
  const auto wave = [&](const torch::Tensor& along) {
    return (along * frequency + one_each() * (2 * M_PI)).sin();
  };
  const auto stripes = wave(columns * angle.cos() + rows * angle.sin());
  const auto others = wave(rows * angle.cos() - columns * angle.sin());
  const auto rings = wave((rows - kSide * one_each()).hypot(columns - kSide * one_each()));
  const auto kinds = torch::stack({stripes, (stripes + others) / std::sqrt(2.0), rings}, 1);
  const auto target = torch::randint(kClasses, {count}, torch::kLong);
  const auto chosen = kinds.index({torch::arange(count), target}).unsqueeze(1);
  return ls::data::tensor_dataset(
      {{"features", chosen + 0.4 * torch::randn(chosen.sizes())}, {"targets", target}});
}

// The layers and names of the network in Python, and a head of its own.
struct NetworkImpl : nn::Module {
  NetworkImpl() {
    register_module("backbone", backbone);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& images) {
    return head->forward(backbone->forward(images));
  }

  nn::Sequential backbone{nn::Conv2d(nn::Conv2dOptions(1, 16, 5).padding(2)),
                          nn::BatchNorm2d(16),
                          nn::ReLU(),
                          nn::MaxPool2d(2),
                          nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)),
                          nn::BatchNorm2d(32),
                          nn::ReLU(),
                          nn::AdaptiveAvgPool2d(1),
                          nn::Flatten()};
  nn::Linear head{32, kClasses};
};
TORCH_MODULE(Network);

}  // namespace

int main(int argc, char** argv) try {
  std::optional<std::string> file;
  const Flags flags =
      read_flags(argc, argv, "Trains a network that begins with the weights of another task.", 8,
                 {{"--weights",
                   "A state_dict of Python; default: the one beside this program's source", file}});

  ls::manual_seed(42);
  const ls::data::Loader train(patterns(600), {.shuffle = true, .global_batch_size = 20});
  const ls::data::Loader valid(patterns(600), {.global_batch_size = 100});
  ls::Callbacks callbacks = flags.callbacks();
  callbacks.add(ls::AccuracyCallback({.num_classes = kClasses}));
  callbacks.add(ls::FreezeCallback({.names = {"backbone.*"}, .epochs = 2, .eval = true}));
  const auto result = ls::SupervisedRunner().train(ls::TrainOptions{
      .model = Network(),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = {ls::optim::AdamW{.lr = 1e-2}, {{.names = "backbone.*", .lr_factor = 0.1}}},
      .loaders = {{"train", train}, {"valid", valid}},
      .num_epochs = flags.epochs,
      .logdir = flags.logdir,
      .resume = flags.resume,
      .weights = {file.value_or(FINETUNE_WEIGHTS), {.skip = {"fc.*", "head.*"}}},
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
    const auto accuracy = [&](std::int64_t epoch) {
      return result.history.at(epoch).at("valid").at("accuracy01");
    };
    std::cout << fmt::format(
        "Result: {:.3f} of the images are right after the first epoch, {:.3f} "
        "after the last one\n",
        accuracy(1), accuracy(result.history.rbegin()->first));
  }
} catch (const std::exception& error) {
  std::cerr << "finetune: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
