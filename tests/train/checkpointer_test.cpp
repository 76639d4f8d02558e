#include "lockstep/train/checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Checkpointer, ASnapshotOfAFinishedEpochIsWhatACheckpointHolds) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.documents = {{"config", "a: 1"}};
  auto hooks = std::make_shared<toy::Hooks>();
  std::string seen;
  hooks->epoch_end = [&](State& s) {
    seen = content_hash(s.checkpointer->snapshot().get<StateDict>("model_state_dict"));
  };
  options.callbacks = {hooks};
  const StateDict saved = checkpoint::load(*toy::train(options).last_checkpoint);
  EXPECT_EQ(content_hash(saved.get<StateDict>("model_state_dict")), seen);
  EXPECT_EQ(saved.get<StateDict>("documents").get<std::string>("config"), "a: 1");
}

TEST(Checkpointer, ASnapshotWhereTheRunCouldNotGoOnIsRefused) {
  TrainOptions options = toy::options();
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->forward = [](State& s) { s.checkpointer->snapshot(); };
  options.callbacks = {hooks};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("can_snapshot"));
}

// The scheduler changes the learning rate as soon as it is made.
TEST(Checkpointer, KeepsTheLearningRateOfTheOptimizersOptions) {
  TrainOptions options = toy::options();
  options.optimizer = optim::SGD{.lr = 0.25, .momentum = 0.9};
  options.scheduler = optim::OneCycleLR{.max_lr = 1};
  double initial = 0;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->run_start = [&](State& s) { initial = s.checkpointer->initial_lr(); };
  options.callbacks = {hooks};
  toy::train(options);
  EXPECT_EQ(initial, 0.25);
}

TEST(Checkpointer, AnEpochWithoutANumberIsNeverTheBest) {
  TrainOptions options = toy::options();
  options.load_best_on_end = true;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->loader_end = [](State& s) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    if (s.loader == "valid") {
      s.loader_metrics["loss"] = std::vector{nan, 0.5, nan}[s.progress.epoch - 1];
    }
  };
  options.callbacks = {hooks};
  EXPECT_EQ(toy::train(options).best_epoch, 2);
}

TEST(Checkpointer, WithoutAnyScoreTheModelStaysAsItIs) {
  TrainOptions options = toy::options();
  options.load_best_on_end = true;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->loader_end = [](State& s) {
    s.loader_metrics["loss"] = std::numeric_limits<double>::quiet_NaN();
  };
  options.callbacks = {hooks};
  toy::Warnings warnings;
  const auto result = toy::train(options);
  EXPECT_EQ(result.best_epoch, 0);
  EXPECT_EQ(weights_hash(result.model.weights()), result.weights_hash);
  EXPECT_THAT(warnings.texts, testing::ElementsAre(HasSubstr("no epoch has a score")));
}

}  // namespace
}  // namespace lockstep
