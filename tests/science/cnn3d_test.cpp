#include "lockstep/science/cnn3d.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/data/tensor_dataset.h"

namespace lockstep::science {
namespace {

torch::Tensor forward(const FieldShape& shape) {
  auto network = make_cnn3d(shape);
  Sizes input = {2, shape.channels};
  input.insert(input.end(), shape.size.begin(), shape.size.end());
  return network->forward(torch::rand(input));
}

TEST(CNN3d, HasTheLayersItIsSaidToHave) {
  auto network = make_cnn3d({.channels = 3, .size = {16, 16, 16}, .outputs = 5});
  std::vector<std::vector<std::int64_t>> shapes;
  for (const auto& parameter : network->parameters()) shapes.push_back(parameter.sizes().vec());
  EXPECT_EQ(shapes[0], (Sizes{6, 3, 2, 2, 2}));
  EXPECT_EQ(shapes[2], (Sizes{6, 6, 2, 2, 2}));
  EXPECT_EQ(shapes[4], (Sizes{12, 6, 2, 2, 2}));
  EXPECT_EQ(shapes[6], (Sizes{24, 12}));
  EXPECT_EQ(shapes[8], (Sizes{5, 24}));
  EXPECT_EQ(network->size(), 12u);
}

TEST(CNN3d, TheHeadFitsTheData) {
  for (const Sizes& size :
       {Sizes{16, 16, 16}, Sizes{32, 32, 32}, Sizes{8, 16, 24}, Sizes{2, 2, 2}}) {
    EXPECT_EQ(forward({.channels = 2, .size = size, .outputs = 7}).sizes(),
              torch::IntArrayRef({2, 7}))
        << size;
  }
  EXPECT_THROW(make_cnn3d({.channels = 1, .size = {16, 16}, .outputs = 1}), DataError);
  EXPECT_THROW(make_cnn3d({.channels = 1, .size = {1, 16, 16}, .outputs = 1}), DataError);
}

data::Loaders cubes() {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({24, 3, 16, 16, 16}) * 0.1 + torch::randn({24, 3, 1, 1, 1});
  const auto data = std::make_shared<data::TensorDataset>(x, x.mean(torch::IntArrayRef({2, 3, 4})));
  return {{"train", {data, {.batch_size = 4, .shuffle = true}}},
          {"valid", {data, {.batch_size = 4}}}};
}

TEST(CNN3d, LearnsFromCubesWithWorkers) {
  CNN3d estimator(
      {.n_epochs = 60, .patience = 60, .logdir = std::nullopt, .lr = 5e-3, .ddp = true});
  estimator.train(cubes());
  const auto& history = estimator.history();
  EXPECT_LT(history.rbegin()->second.at("valid").at("loss"),
            0.3 * history.begin()->second.at("valid").at("loss"));
}

}  // namespace
}  // namespace lockstep::science
