#include "lockstep/runner/supervised.h"

#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

TEST(SupervisedRunner, UsesTheKeysItWasTold) {
  const auto dataset = data::tensor_dataset(
      {{"x", torch::randn({6, 4})}, {"y", torch::randint(0, 3, {6}, torch::kInt64)}});
  SupervisedRunner runner(
      {.input_key = "x", .output_key = "scores", .target_key = "y", .loss_key = "nll"});
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [](State& s) {
    EXPECT_TRUE(s.batch.contains("scores"));
    EXPECT_TRUE(s.batch.contains("nll"));
  };
  TrainOptions options = toy::options();
  options.loaders = {{"train", {dataset, {.batch_size = 3}}},
                     {"valid", {dataset, {.batch_size = 3}}}};
  options.callbacks = {hooks};
  const auto result = runner.train(options);
  EXPECT_EQ(result.best_metric, result.best_metrics.at("valid").at("nll")) << "the default metric";
  EXPECT_EQ(
      runner.predict_loader({.loader = {dataset, {.batch_size = 6}}}).concat("scores").size(0), 6);
}

// The same training without Lockstep: the same order, the same seeds, LibTorch's own optimizer.
TEST(SupervisedRunner, FollowsALoopWrittenByHand) {
  namespace nn = torch::nn;
  const auto make = [] {
    torch::manual_seed(3);
    return nn::Sequential(nn::Linear(4, 8), nn::Tanh(), nn::Linear(8, 3));
  };
  const auto dataset = toy::points(50);
  TrainOptions options = toy::options();
  options.model = make();
  options.loaders = {{"train", {dataset, {.batch_size = 8, .shuffle = true}}}};
  options.valid_loader.reset();
  options.optimizer = optim::Adam{.lr = 0.01};
  toy::train(options);

  auto model = make();
  torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(0.01));
  const data::Loader loader(dataset, {.batch_size = 8, .shuffle = true});
  for (std::int64_t epoch = 1; epoch <= 3; ++epoch) {
    for (Batch& batch : loader.stream({.seed = 42, .epoch = epoch})) {
      const auto loss =
          torch::cross_entropy_loss(model->forward(batch["features"]), batch["targets"]);
      adam.zero_grad();
      loss.backward();
      adam.step();
    }
  }
  const auto ours = options.model.parameters();
  const auto theirs = model->parameters();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours[i].second, theirs[i], 1e-5, 1e-6)) << ours[i].first;
  }
}

}  // namespace
}  // namespace lockstep
