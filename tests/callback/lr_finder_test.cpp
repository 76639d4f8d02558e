#include "lockstep/callback/lr_finder.h"

#include <cmath>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/runner/supervised.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// A model without dropout, so that the loss falls if the rate is right.
TrainOptions plain_options(const std::shared_ptr<LRFinderCallback>& finder) {
  namespace nn = torch::nn;
  TrainOptions options = toy::options();
  torch::manual_seed(3);
  options.model = nn::Sequential(nn::Linear(4, 16), nn::ReLU(), nn::Linear(16, 3));
  options.optimizer = optim::SGD{.lr = 123};
  options.num_epochs = 1000;
  options.callbacks = {finder};
  return options;
}

TEST(LRFinder, RaisesTheRateAndLeavesTheModelAsItWas) {
  const TemporaryDirectory folder;
  const auto finder = std::make_shared<LRFinderCallback>(
      LRFinderCallbackOptions{.first_lr = 1e-4, .final_lr = 100, .num_steps = 60});
  TrainOptions options = plain_options(finder);
  options.logdir = folder.path();
  const std::string before = content_hash(options.model.state());
  const auto result = toy::train(options);
  EXPECT_EQ(content_hash(result.model.state()), before);
  ASSERT_GT(finder->points().size(), 20u);
  EXPECT_DOUBLE_EQ(finder->points().front().lr, 1e-4);
  ASSERT_TRUE(finder->suggestion());
  EXPECT_GT(*finder->suggestion(), 1e-3);
  EXPECT_LT(*finder->suggestion(), 30);
  EXPECT_THAT(*result.stop_reason, HasSubstr("the loss falls most steeply at"));
  EXPECT_THAT(read_file(folder / "lr_finder.csv"), HasSubstr("step,lr,loss\n1,0.0001,"));
}

TEST(LRFinder, FindsTheLossUnderAnotherName) {
  const auto finder = std::make_shared<LRFinderCallback>(
      LRFinderCallbackOptions{.first_lr = 1e-4, .final_lr = 1, .num_steps = 10});
  SupervisedRunner runner({.loss_key = "energy"});
  TrainOptions options = plain_options(finder);
  options.valid_loader.reset();
  runner.train(options);
  ASSERT_EQ(finder->points().size(), 10u);
  EXPECT_TRUE(std::isfinite(finder->points().back().loss));
}

TEST(LRFinder, IsTheSameOnWorkers) {
  std::vector<double> found;
  for (const int workers : {1, 2}) {
    const auto finder = std::make_shared<LRFinderCallback>(LRFinderCallbackOptions{
        .first_lr = 1e-3, .final_lr = 1, .num_steps = 20, .scale = LRScale::kLinear});
    TrainOptions options = plain_options(finder);
    options.ddp = true;
    options.workers = workers;
    options.shards = 2;
    toy::train(options);
    ASSERT_EQ(finder->points().size(), 20u);
    EXPECT_NEAR(finder->points()[10].lr, 1e-3 + 10.0 / 19 * 0.999, 1e-12);
    found.push_back(finder->points().back().loss);
  }
  EXPECT_NEAR(found[0], found[1], 1e-6);
}

// A loss that is always 1 in the first sample's batch and 3 in that of the second, with the weights
// 9 and 1.
class TwoLosses : public SupervisedRunner {
 protected:
  void handle_batch(State& state) override {
    const auto output = state.model(state.batch["features"]);
    const bool is_first = state.batch["targets"].item<std::int64_t>() == 0;
    state.set_loss(output.sum() * 0 + (is_first ? 1 : 3), mean_over(is_first ? 9 : 1));
  }
};

TEST(LRFinder, WeightsTheLossByWhatItIsAMeanOver) {
  const auto finder = std::make_shared<LRFinderCallback>(
      LRFinderCallbackOptions{.first_lr = 1e-4, .final_lr = 1, .num_steps = 2});
  TrainOptions options = plain_options(finder);
  const auto data = std::make_shared<data::TensorDataset>(torch::zeros({2, 4}), torch::arange(2));
  options.loaders = {{"train", {data, {.batch_size = 1}}}};
  options.valid_loader.reset();
  options.accumulation_steps = 2;
  options.dry_run = false;  // it has two samples in a batch
  TwoLosses().train(options);
  ASSERT_EQ(finder->points().size(), 2u);
  EXPECT_NEAR(finder->points()[0].loss, (9 * 1 + 1 * 3) / 10.0, 1e-6);
}

TEST(LRFinder, AStepWithoutTargetsThatCountIsNotAPoint) {
  const auto finder = std::make_shared<LRFinderCallback>(
      LRFinderCallbackOptions{.first_lr = 1e-4, .final_lr = 0.1, .num_steps = 6});
  TrainOptions options = plain_options(finder);
  // Every other batch of 8 has only targets that are ignored.
  torch::manual_seed(1);
  const auto features = torch::randn({32, 4});
  auto targets = features.narrow(1, 0, 3).argmax(1);
  targets.narrow(0, 8, 8).fill_(-100);
  targets.narrow(0, 24, 8).fill_(-100);
  const auto data = std::make_shared<data::TensorDataset>(features, targets);
  options.loaders = {{"train", {data, {.batch_size = 8}}}};
  options.valid_loader.reset();
  toy::train(options);
  ASSERT_EQ(finder->points().size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(std::isfinite(finder->points()[i].loss)) << i;
    EXPECT_NEAR(finder->points()[i].lr, 1e-4 * std::pow(1e3, double(i) / 5), 1e-9) << i;
  }
}

TEST(LRFinder, LeavesTheModelAsItWasHoweverItEnds) {
  // With gradients that wait for a later batch, and in a run that is too short.
  for (const auto& [accumulation, epochs, steps] :
       {std::tuple(2, 1000, 21), std::tuple(3, 1000, 7), std::tuple(1, 1, 500)}) {
    const auto finder = std::make_shared<LRFinderCallback>(
        LRFinderCallbackOptions{.first_lr = 1e-4, .final_lr = 0.5, .num_steps = steps});
    TrainOptions options = plain_options(finder);
    options.accumulation_steps = accumulation;
    options.num_epochs = epochs;
    const std::string before = content_hash(options.model.state());
    EXPECT_EQ(content_hash(toy::train(options).model.state()), before) << accumulation;
    EXPECT_FALSE(finder->points().empty());
  }
}

TEST(LRFinder, RefusesWhatCannotBe) {
  EXPECT_THROW(LRFinderCallback({.first_lr = 1, .final_lr = 0.1}), ConfigError);
  EXPECT_THROW(LRFinderCallback({.num_steps = 1}), ConfigError);
  TrainOptions options = plain_options(std::make_shared<LRFinderCallback>());
  options.scheduler = optim::StepLR{.step_size = 1};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("has a scheduler"));
}

TEST(LRFinder, ATestThatWasInterruptedGoesOn) {
  const auto make = [] {
    return std::make_shared<LRFinderCallback>(
        LRFinderCallbackOptions{.first_lr = 1e-4, .final_lr = 1, .num_steps = 20});
  };
  const auto whole = make();
  const TrainOptions calm = plain_options(whole);
  const std::string before = content_hash(calm.model.state());
  toy::train(calm);

  const TemporaryDirectory folder;
  TrainOptions options = plain_options(make());
  options.logdir = folder.path();
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->step = [](State& s) {
    if (s.progress.epoch == 2 && s.loader_batch == 3) throw Error("power cut");
  };
  options.callbacks.add(hooks);
  options.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("power cut"));

  const auto resumed = make();
  options = plain_options(resumed);
  options.logdir = folder.path();
  options.resume = "last";
  const TrainResult result = toy::train(options);
  EXPECT_EQ(content_hash(result.model.state()), before);
  ASSERT_EQ(resumed->points().size(), whole->points().size());
  for (std::size_t i = 0; i < whole->points().size(); ++i) {
    EXPECT_EQ(resumed->points()[i].lr, whole->points()[i].lr) << i;
    EXPECT_EQ(resumed->points()[i].loss, whole->points()[i].loss) << i;
  }
  // A finished test is not begun again.
  const auto again = make();
  options.callbacks = {again};
  options.model = plain_options(again).model;
  EXPECT_EQ(toy::train(options).stop_reason, result.stop_reason);
  EXPECT_EQ(again->points().size(), whole->points().size());
}

}  // namespace
}  // namespace lockstep
