#include <iostream>

#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace nn = torch::nn;

int main() {
  const auto x = torch::randn({200, 4});
  const auto data = std::make_shared<ls::data::TensorDataset>(x, x.argmax(1));
  ls::SupervisedRunner runner;
  const auto result = runner.train({
      .model = nn::Sequential(nn::Linear(4, 4)),
      .criterion = nn::CrossEntropyLoss(),
      .optimizer = ls::optim::Adam{.lr = 0.1},
      .loaders = {{"train", {data, {.batch_size = 20, .shuffle = true}}}},
      .num_epochs = 10,
      .callbacks = {ls::AccuracyCallback({.num_classes = 4})},
  });
  const double accuracy = result.last_metrics.at("train").at("accuracy01");
  std::cout << "accuracy " << accuracy << '\n';
  return accuracy > 0.9 ? 0 : 1;
}
