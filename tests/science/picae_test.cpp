#include "lockstep/science/picae.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/science/spectrum.h"

namespace lockstep::science {
namespace {

TEST(Curl, HasNoDivergence) {
  const torch::Tensor potential = torch::rand({2, 3, 6, 6, 6}, torch::kFloat64);
  EXPECT_LT(divergence(curl(potential)).abs().max().item<double>(), 1e-12);
  EXPECT_GT(divergence(potential).abs().max().item<double>(), 0.1);
}

TEST(Curl, OfAKnownField) {
  // A = (0, 0, sin y) has the curl (cos y, 0, 0), up to the difference's sin(h) / h.
  const torch::Tensor y = 2 * M_PI * torch::arange(16, torch::kFloat64) / 16;
  torch::Tensor potential = torch::zeros({1, 3, 16, 16, 16}, torch::kFloat64);
  potential[0][2] = torch::sin(y).reshape({1, 16, 1}).expand({16, 16, 16});
  const torch::Tensor rotation = curl(potential);
  EXPECT_NEAR(rotation[0][0][3][0][5].item<double>(), std::sin(2 * M_PI / 16), 1e-12);
  EXPECT_EQ(rotation[0][1].abs().max().item<double>(), 0);
}

TEST(Curl, KnowsTheSpacing) {
  const std::vector<double> spacing = {1, 0.5, 4};
  const torch::Tensor potential = torch::rand({1, 3, 6, 6, 6}, torch::kFloat64);
  const torch::Tensor rotation = curl(potential, spacing);
  EXPECT_LT(divergence(rotation, spacing).abs().max().item<double>(), 1e-12);
  EXPECT_GT(divergence(rotation).abs().max().item<double>(), 0.1);
}

data::Loaders flow(std::int64_t side) {
  std::vector<torch::Tensor> fields;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    fields.push_back(
        synthetic_turbulence({.shape = {side, side, side}, .seed = seed, .components = 3}));
  }
  const torch::Tensor x = torch::stack(fields);
  return {{"train", {std::make_shared<data::TensorDataset>(x, x.flatten(1)), {.batch_size = 2}}}};
}

TEST(PICAE, WhatComesOutDoesNotDivergeAndIsLearned) {
  PICAE estimator(
      {.network = {.n_epochs = 12, .logdir = std::nullopt, .lr = 1e-2, .weight_decay = 1e-5}});
  const auto loaders = flow(16);
  estimator.train(loaders);
  const torch::Tensor predicted =
      estimator.predict(loaders.at("train")).reshape({4, 3, 16, 16, 16});
  EXPECT_LT(divergence(predicted).abs().max().item<double>(), 1e-5);
  EXPECT_LT(estimator.history().rbegin()->second.at("train").at("loss"),
            estimator.history().begin()->second.at("train").at("loss"));
  EXPECT_EQ(std::get<std::int64_t>(estimator.parameters().at("nfilters")), 6);
}

TEST(PICAE, IsLoadedWithWhatItWasMadeOf) {
  const TemporaryDirectory folder;
  PICAE estimator({.network = {.n_epochs = 1, .logdir = std::nullopt}, .nfilters = 4});
  const auto loaders = flow(8);
  estimator.train(loaders);
  estimator.save(folder.path());
  PICAE other({.spacing = {1, 2, 3}});
  other.load(folder.path());
  EXPECT_TRUE(other.predict(loaders.at("train")).equal(estimator.predict(loaders.at("train"))));
}

TEST(PICAE, IsLoadedWithItsSpacing) {
  const TemporaryDirectory folder;
  PICAE estimator({.network = {.n_epochs = 1, .logdir = std::nullopt}, .spacing = {1, 1, 2}});
  const auto loaders = flow(8);
  estimator.train(loaders);
  estimator.save(folder.path());
  PICAE other;
  other.load(folder.path());
  const torch::Tensor predicted = other.predict(loaders.at("train"));
  EXPECT_TRUE(predicted.equal(estimator.predict(loaders.at("train"))));
  const torch::Tensor velocity = predicted.reshape({4, 3, 8, 8, 8});
  EXPECT_LT(divergence(velocity, {1, 1, 2}).abs().max().item<double>(), 1e-5);
}

TEST(PICAE, RefusesWhatCannotBe) {
  EXPECT_THROW(PICAE({.kernel_size = 2}), ConfigError);
  EXPECT_THROW(PICAE({.nfilters = 0}), ConfigError);
  EXPECT_THROW(PICAE({.spacing = {1, 2}}), ConfigError);
  PICAE estimator({.network = {.logdir = std::nullopt}});
  EXPECT_THROW(estimator.train(flow(12)), DataError) << "12 cannot be halved three times";
}

}  // namespace
}  // namespace lockstep::science
