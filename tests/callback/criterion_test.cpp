#include "lockstep/callback/criterion.h"

#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

const auto kPenalty = [](const torch::Tensor& x, const torch::Tensor&) {
  return x.square().mean();
};

TEST(CriterionCallback, WatchesWithoutChangingTheRun) {
  TrainOptions options = toy::options();
  const auto plain = toy::train(options).weights_hash;
  options.model = toy::model();
  options.callbacks = {CriterionCallback({.criterion = kPenalty, .metric_key = "penalty"})};
  options.valid_metric = "penalty";
  const auto result = toy::train(options);
  EXPECT_EQ(result.weights_hash, plain);
  EXPECT_GT(result.last_metrics.at("valid").at("penalty"), 0);
}

TEST(CriterionCallback, AddsToTheLossWithItsWeight) {
  TrainOptions options = toy::options();
  options.callbacks = {
      CriterionCallback({.criterion = kPenalty, .metric_key = "penalty", .weight = 0.5})};
  const auto with_callback = toy::train(options);

  TrainOptions by_hand = toy::options();
  by_hand.criterion = [](const torch::Tensor& x, const torch::Tensor& y) {
    return torch::cross_entropy_loss(x, y) + x.square().mean() * 0.5;
  };
  EXPECT_EQ(with_callback.weights_hash, toy::train(by_hand).weights_hash);
}

TEST(CriterionCallback, RefusesToBeTheLossItself) {
  EXPECT_THROW(CriterionCallback({.criterion = kPenalty, .metric_key = "loss"}), ConfigError);
  EXPECT_THROW(CriterionCallback({}), ConfigError);
}

// The weights of the criterion count, not the samples of the batch.
TEST(CriterionCallback, ItsAverageIsOverWhatItIsAMeanOver) {
  namespace nn = torch::nn;
  const auto data = std::make_shared<data::TensorDataset>(
      torch::tensor({{1.0f, 0.0f}, {0.0f, 2.0f}, {3.0f, 0.0f}, {0.0f, 1.0f}}),
      torch::tensor({0, -100, 1, 1}));
  const auto outputs_of = [&](std::int64_t batch_size) {
    SupervisedRunner runner;
    return runner
        .evaluate_loader({.loader = {data, {.batch_size = batch_size}},
                          .model = nn::Sequential(nn::Identity()),
                          .criterion = nn::CrossEntropyLoss(),
                          .callbacks = {CriterionCallback(
                              {.criterion = nn::CrossEntropyLoss(), .metric_key = "again"})}})
        .at("again");
  };
  EXPECT_NEAR(outputs_of(2), outputs_of(4), 1e-6);
}

}  // namespace
}  // namespace lockstep
