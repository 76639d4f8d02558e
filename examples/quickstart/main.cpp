// `make quickstart` runs this: a multilayer perceptron learns to classify 60,000 images of clothes.
#include <iostream>

#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace nn = torch::nn;

int main() try {
  auto train = ls::data::fashion_mnist({.root = "data", .train = true, .download = true});
  auto valid = ls::data::fashion_mnist({.root = "data", .train = false, .download = true});

  ls::SupervisedRunner runner;
  auto result = runner.train(ls::TrainOptions{
      .model = nn::Sequential(nn::Flatten(), nn::Linear(28 * 28, 256), nn::ReLU(),
                              nn::Linear(256, 128), nn::ReLU(), nn::Linear(128, 10)),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = 1e-3},
      .scheduler = ls::optim::OneCycleLR{.max_lr = 3e-3},
      .loaders = {{"train", {train, {.batch_size = 64, .shuffle = true}}},
                  {"valid", {valid, {.batch_size = 500}}}},
      .num_epochs = 6,
      .logdir = "logs/quickstart",
      .valid_loader = "valid",
      .valid_metric = "accuracy01",
      .minimize_valid_metric = false,
      .verbose = true,
      .callbacks = {ls::AccuracyCallback({.num_classes = 10}),
                    ls::ConfusionMatrixCallback(
                        {.class_names = {"T-shirt", "Trouser", "Pullover", "Dress", "Coat",
                                         "Sandal", "Shirt", "Sneaker", "Bag", "Boot"}})},
      .ddp = true,  // every core of this machine
  });
  std::cout << "Validation accuracy: " << result.best_metric << '\n';
} catch (const std::exception& error) {
  std::cerr << "quickstart: " << ls::message_of(error) << '\n';
  return ls::exit_code_of(error);
}
