#include <iostream>

#include <lockstep/lockstep.h>

namespace ls = lockstep;
namespace nn = torch::nn;

namespace science = lockstep::science;

// Writes the files that a simulation would write to run/, and runs the README's program on them.
void fields() {
  std::filesystem::create_directories("run");
  for (const int checkpoint : {0, 10, 20}) {
    for (const char* const feature : {"velocity", "stress"}) {
      science::write_hdf5(fmt::format("run/{}_{:04d}.h5", feature, checkpoint),
                          {{"data", torch::randn({3, 32, 32, 32})}});
    }
  }
#include "fields.inc"
}

int main() {
  fields();
  const auto x = torch::randn({200, 4});
  const auto data = std::make_shared<ls::data::TensorDataset>(x, x.argmax(1));
  ls::SupervisedRunner runner;
  const auto result = runner.train(ls::TrainOptions{
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
