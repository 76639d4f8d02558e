// Trains a line through points.
#include <lockstep/lockstep.h>

namespace ls = lockstep;

int main() {
  const torch::Tensor x = torch::linspace(-1, 1, 64).unsqueeze(1);
  const auto data = std::make_shared<ls::data::TensorDataset>(x, 2 * x + 1);
  ls::SupervisedRunner runner;
  const auto result =
      runner.train(ls::TrainOptions{.model = torch::nn::Sequential(torch::nn::Linear(1, 1)),
                                    .criterion = torch::nn::MSELoss(),
                                    .optimizer = ls::optim::SGD{.lr = 0.5},
                                    .loaders = {{"train", {data, {.batch_size = 16}}}},
                                    .num_epochs = 20,
                                    .console = false});
  return result.last_metrics.at("train").at("loss") < 1e-3 ? 0 : 1;
}
