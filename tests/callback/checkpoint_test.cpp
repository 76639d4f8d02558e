#include "lockstep/callback/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<std::string> files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

// Sets the given validation scores, one per epoch.
CallbackPtr scripted(std::vector<double> scores) {
  auto script = std::make_shared<toy::Hooks>();
  script->loader_end = [scores](State& s) {
    if (s.loader == "valid") s.loader_metrics["loss"] = scores[s.progress.epoch - 1];
  };
  return script;
}

TEST(CheckpointCallback, KeepsTheBestByTheRunsMetric) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.num_epochs = 4;
  options.callbacks = {scripted({3, 1, 2, 4}), CheckpointCallback({.save_n_best = 2})};
  const auto result = toy::train(options);
  EXPECT_THAT(files(folder / "run/checkpoints"),
              UnorderedElementsAre("best.pth", "last.pth", "epoch.0002.pth", "epoch.0003.pth",
                                   "_metrics.json"));
  EXPECT_EQ(
      checkpoint::load(*result.best_checkpoint).get<StateDict>("run").get<std::int64_t>("epoch"),
      2);
}

TEST(CheckpointCallback, WithoutAMetricTheNewestIsTheBest) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.valid_loader.reset();
  const auto result = toy::train(options);
  EXPECT_EQ(result.best_epoch, 3);
  EXPECT_EQ(
      checkpoint::load(*result.best_checkpoint).get<StateDict>("run").get<std::int64_t>("epoch"),
      3);
}

TEST(CheckpointCallback, AResumedRunKeepsNoMoreThanItShould) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.num_epochs = 2;
  options.callbacks = {scripted({3, 2})};
  toy::train(options);
  options.num_epochs = 3;
  options.resume = "last";
  options.callbacks = {scripted({3, 2, 1})};
  toy::train(options);
  EXPECT_THAT(files(folder / "run/checkpoints"),
              UnorderedElementsAre("best.pth", "last.pth", "epoch.0003.pth", "_metrics.json"));
}

TEST(CheckpointCallback, ARunThatWasCopiedAsLastAndBestKeepsItsBest) {
  for (const CheckpointMode mode : {CheckpointMode::kFull, CheckpointMode::kModel}) {
    TemporaryDirectory folder;
    TrainOptions options = toy::options();
    options.logdir = folder / "run";
    options.num_epochs = 2;
    const auto callbacks = [&](std::vector<double> scores) {
      return Callbacks{scripted(std::move(scores)), CheckpointCallback(),
                       CheckpointCallback({.folder = folder / "other", .mode = mode})};
    };
    options.callbacks = callbacks({1, 2});
    toy::train(options);
    for (const char* const name : {"run/checkpoints", "other"}) {
      fs::remove(folder / name / "epoch.0001.pth");
      fs::remove(folder / name / "_metrics.json");
    }
    options.num_epochs = 3;
    options.resume = "last";
    options.callbacks = callbacks({1, 2, 3});
    toy::train(options);
    for (const char* const name : {"run/checkpoints", "other"}) {
      EXPECT_THAT(files(folder / name),
                  UnorderedElementsAre("best.pth", "last.pth", "epoch.0001.pth", "_metrics.json"));
    }
  }
}

TEST(CheckpointCallback, WeightsAloneAreSmallAndEnoughToEvaluate) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.callbacks = {
      CheckpointCallback({.folder = folder / "w", .mode = CheckpointMode::kModel})};
  const auto result = toy::train(options);
  EXPECT_FALSE(checkpoint::load(*result.last_checkpoint).contains("optimizer_state_dict"));
  const Metrics metrics =
      SupervisedRunner().evaluate_loader({.loader = options.loaders.at("valid"),
                                          .model = toy::model(5),
                                          .criterion = torch::nn::CrossEntropyLoss(),
                                          .resume = result.last_checkpoint->string()});
  EXPECT_EQ(metrics.at("loss"), result.last_metrics.at("valid").at("loss"));
}

TEST(CheckpointCallback, SavesInsideEpochsOnlyWhereARunCanGoOn) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.accumulation_steps = 3;
  options.logdir = folder / "run";
  std::vector<std::int64_t> saved;
  auto watch = std::make_shared<toy::Hooks>();
  watch->checkpoint = [&](State& s) {
    const auto run = checkpoint::load(*s.last_checkpoint).get<StateDict>("run");
    if (run.get<std::string>("loader") != "train") return;
    saved.push_back(run.get<std::int64_t>("loader_batches_done"));
  };
  options.callbacks = {watch, CheckpointCallback({.save_every_batches = 1})};
  toy::train(options);
  EXPECT_THAT(saved, testing::ElementsAre(3, 6, 7)) << "seven batches: updates after 3, 6, 7";
}

TEST(CheckpointCallback, SavesEveryNthEpochAndTheLastOne) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.num_epochs = 5;
  options.callbacks = {scripted({5, 4, 3, 2, 1}),
                       CheckpointCallback({.save_n_best = 9, .save_every_epochs = 2})};
  const auto result = toy::train(options);
  EXPECT_THAT(files(folder / "run/checkpoints"),
              UnorderedElementsAre("best.pth", "last.pth", "epoch.0002.pth", "epoch.0004.pth",
                                   "epoch.0005.pth", "_metrics.json"));
  EXPECT_EQ(result.best_checkpoint, folder / "run/checkpoints/best.pth");

  // The epoch after which a callback stops the run is the last one, too.
  auto stop = std::make_shared<toy::Hooks>();
  stop->epoch_end = [](State& s) {
    if (s.progress.epoch == 3) s.request_stop("enough");
  };
  options.logdir = folder / "stopped";
  options.callbacks = {stop, CheckpointCallback({.save_every_epochs = 0})};
  toy::train(options);
  EXPECT_THAT(files(folder / "stopped/checkpoints"),
              UnorderedElementsAre("best.pth", "last.pth", "epoch.0003.pth", "_metrics.json"));
}

TEST(CheckpointCallback, SavesNothingIfAskedTo) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.callbacks = {CheckpointCallback({.mode = CheckpointMode::kNone})};
  const auto result = toy::train(options);
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints"));
  EXPECT_FALSE(result.last_checkpoint.has_value());
}

TEST(CheckpointCallback, KeepsEverySaveUnderTheNameOfAPattern) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();  // 7 batches per epoch
  options.logdir = folder / "run";
  options.num_epochs = 2;
  const auto callbacks = [] {
    return Callbacks{scripted({0.5, 0.25}),
                     CheckpointCallback({.keep_all = true,
                                         .save_every_steps = 5,
                                         .filename = "m.{epoch:02d}.{step}-{valid_loss:.2f}"})};
  };
  options.callbacks = callbacks();
  const auto result = toy::train(options);
  const std::vector<std::string> expected{"best.pth",        "last.pth",        "_metrics.json",
                                          "m.01.5-nan.pth",  "m.01.7-0.50.pth", "m.02.10-nan.pth",
                                          "m.02.14-0.25.pth"};
  EXPECT_THAT(files(folder / "run/checkpoints"), testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(content_hash(checkpoint::load(folder / "run/checkpoints/best.pth")),
            content_hash(checkpoint::load(folder / "run/checkpoints/m.02.14-0.25.pth")));

  // A resume by such a name goes on with the same files, and the same bits.
  options.callbacks = callbacks();
  options.resume = "m.01.5-nan";
  EXPECT_EQ(toy::train(options).weights_hash, result.weights_hash);
  EXPECT_THAT(files(folder / "run/checkpoints"), testing::UnorderedElementsAreArray(expected));
}

TEST(CheckpointCallback, ASmallGainDoesNotChangeTheBest) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.num_epochs = 3;
  options.callbacks = {scripted({0.5, 0.45, 0.3}), CheckpointCallback({.min_delta = 0.1})};
  toy::train(options);
  EXPECT_THAT(files(folder / "run/checkpoints"),
              UnorderedElementsAre("best.pth", "last.pth", "epoch.0003.pth", "_metrics.json"));
  options.num_epochs = 2;
  options.logdir = folder / "two";
  const auto result = toy::train(options);
  EXPECT_TRUE(std::filesystem::exists(folder / "two/checkpoints/epoch.0001.pth"));
  EXPECT_EQ(result.best_epoch, 2);
  EXPECT_EQ(result.best_checkpoint, folder / "two/checkpoints/best.pth") << "of epoch 1";
}

TEST(CheckpointCallback, TheBestFileIsNamedAlsoIfTheBestEpochWasNotSaved) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.num_epochs = 4;
  options.callbacks = {scripted({4, 2, 1, 3}), CheckpointCallback({.save_every_epochs = 2})};
  const auto result = toy::train(options);
  EXPECT_EQ(result.best_epoch, 3);
  ASSERT_EQ(result.best_checkpoint, folder / "run/checkpoints/best.pth");
  EXPECT_EQ(
      checkpoint::load(*result.best_checkpoint).get<StateDict>("run").get<std::int64_t>("epoch"),
      2);

  // But not if it was chosen in another way.
  options.logdir = folder / "other";
  options.callbacks = {scripted({4, 2, 1, 3}), CheckpointCallback({.minimize = false})};
  EXPECT_EQ(toy::train(options).best_checkpoint, std::nullopt);
}

TEST(CheckpointCallback, SaysWhatIsWrongWithIt) {
  EXPECT_THAT(toy::error_of([] { CheckpointCallback({.save_n_best = -1}); }),
              HasSubstr("save_n_best"));
  EXPECT_THAT(toy::error_of([] {
                CheckpointCallback({.save_every_batches = 1, .mode = CheckpointMode::kModel});
              }),
              HasSubstr("save_every_batches"));
  TrainOptions options = toy::options();
  options.callbacks = {CheckpointCallback()};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("logdir"));
}

// An optimizer whose state exists only after the first step, and cannot be saved.
class Forgetful : public torch::optim::SGD {
 public:
  explicit Forgetful(std::vector<torch::Tensor> parameters)
      : SGD(std::move(parameters), torch::optim::SGDOptions(0.1)) {}
  torch::Tensor step(LossClosure closure = nullptr) override {
    stepped_ = true;
    return SGD::step(std::move(closure));
  }
  void save(torch::serialize::OutputArchive& archive) const override {
    TORCH_CHECK(!stepped_, "serialize() is missing");
    SGD::save(archive);
  }

 private:
  bool stepped_ = false;
};

TEST(CheckpointCallback, AnOptimizerThatCannotBeSavedIsNoticedInTheFirstBatch) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.optimizer = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Forgetful>(std::move(parameters));
  };
  std::int64_t batches = 0;
  auto count = std::make_shared<toy::Hooks>();
  count->batch_start = [&](State&) { ++batches; };
  options.callbacks = {count};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::HasSubstr("its state cannot be saved"));
  EXPECT_EQ(batches, 1);
}

}  // namespace
}  // namespace lockstep
