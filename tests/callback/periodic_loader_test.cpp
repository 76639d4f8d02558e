#include "lockstep/callback/periodic_loader.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/callback/lambda.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::UnorderedElementsAre;

TrainOptions periodic(std::map<std::string, std::int64_t> every) {
  TrainOptions options = toy::options();
  options.num_epochs = 7;
  options.callbacks = {PeriodicLoaderCallback({.every = std::move(every)})};
  return options;
}

TEST(PeriodicLoader, GoesThroughALoaderInEveryNthEpoch) {
  TrainOptions options = periodic({{"valid", 3}, {"test", 0}});
  options.loaders.set("test", {toy::points(10), {.batch_size = 10}});
  std::vector<std::string> passes;
  options.callbacks.add(on_loader_start([&](State& s) {
    if (s.loader != "train") passes.push_back(fmt::format("{}/{}", s.progress.epoch, s.loader));
  }));
  const auto result = toy::train(options);
  EXPECT_THAT(passes, ElementsAre("3/valid", "6/valid"));
  EXPECT_THAT(result.history.at(1), UnorderedElementsAre(Key("train"), Key(kEpochKey)));
  EXPECT_THAT(result.history.at(3),
              UnorderedElementsAre(Key("train"), Key("valid"), Key(kEpochKey)));
}

TEST(PeriodicLoader, AnEpochWithoutAScoreIsNeverTheBest) {
  const TemporaryDirectory folder;
  TrainOptions options = periodic({{"valid", 2}});
  options.logdir = folder / "run";
  options.load_best_on_end = true;
  const auto result = toy::train(options);
  EXPECT_EQ(result.best_epoch % 2, 0);
  EXPECT_TRUE(std::isfinite(result.best_metric));
  EXPECT_TRUE(result.best_checkpoint);
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints/last.pth"));
}

TEST(PeriodicLoader, EarlyStoppingAndPlateausWaitForAScore) {
  TrainOptions options = periodic({{"valid", 2}});
  options.num_epochs = 20;
  options.scheduler = optim::ReduceLROnPlateau{.factor = 0.5, .patience = 0};
  std::vector<double> lrs;
  // The score is always the same, so the second one is the first miss.
  options.callbacks.add(on_loader_end([](State& s) { s.loader_metrics["loss"] = 1; }));
  options.callbacks.add(on_epoch_end([&](State& s) { lrs.push_back(s.optimizer->lr()); }));
  options.callbacks.add(EarlyStoppingCallback({.patience = 2}));
  const auto result = toy::train(options);
  EXPECT_EQ(result.epochs, 6) << "scores in epochs 2, 4 and 6";
  EXPECT_THAT(lrs, ElementsAre(0.01, 0.01, 0.01, 0.005, 0.005, 0.0025));
}

TEST(PeriodicLoader, ARunThatIsResumedInsideAnEpochGoesOn) {
  const TemporaryDirectory folder;
  // 'valid' is between two other loaders, so their places in the list must not change.
  const auto options_in = [&](const char* name) {
    TrainOptions options = periodic({{"valid", 3}});
    options.num_epochs = 3;
    options.loaders.set("train_more", {toy::points(24, 5), {.batch_size = 8, .shuffle = true}});
    options.logdir = folder / name;
    options.callbacks.add(CheckpointCallback({.save_every_batches = 8}));
    return options;
  };
  const std::string straight = toy::train(options_in("straight")).weights_hash;
  TrainOptions options = options_in("parts");
  // After the first batch of train_more in epoch 2, which is saved.
  options.callbacks.add(
      on_batch_start([](State&) { throw Error("stopped"); }).only_if([](const State& s) {
        return s.progress.epoch == 2 && s.loader == "train_more" && s.loader_batch == 2;
      }));
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("stopped"));
  options = options_in("parts");
  options.resume = "last";
  EXPECT_EQ(toy::train(options).weights_hash, straight);
}

TEST(PeriodicLoader, IsTheSameOnWorkers) {
  TrainOptions options = periodic({{"valid", 2}});
  options.ddp = true;
  options.shards = 2;
  options.workers = 1;
  const std::string one = toy::train(options).weights_hash;
  options.model = toy::model();
  options.workers = 2;
  EXPECT_EQ(toy::train(options).weights_hash, one);
}

TEST(PeriodicLoader, RefusesWhatCannotWork) {
  const auto error = [](std::map<std::string, std::int64_t> every) {
    return toy::error_of([&] { toy::train(periodic(std::move(every))); });
  };
  EXPECT_THAT(error({}), HasSubstr("got none"));
  EXPECT_THAT(error({{"valid", -2}}), HasSubstr("valid: expected 0 or more epochs, got -2"));
  EXPECT_THAT(error({{"vaild", 2}}), HasSubstr("did you mean 'valid'?"));
  EXPECT_THAT(error({{"train", 2}, {"valid", 3}}), HasSubstr("epoch 1 would have no loader"));
  EXPECT_THAT(error({{"valid", 8}}), HasSubstr("'valid' would take part in none of 7 epochs"));
  EXPECT_THAT(error({{"valid", 0}}), HasSubstr("none of 7 epochs"));
}

}  // namespace
}  // namespace lockstep
