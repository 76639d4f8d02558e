#include "lockstep/runner/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Overrides everything that a user may override.
class Custom : public Runner {
 public:
  int batches = 0;

 protected:
  void handle_batch(State& state) override {
    ++batches;
    const auto logits = state.model(state.batch["features"]);
    state.batch.set("logits", logits);
    state.batch.set("loss", state.criterion(logits, state.batch["targets"]));
    state.batch_metrics["twice"] = 2 * state.batch["loss"].item<double>();
  }
  Batch predict_batch(const Model& model, const Batch& batch) override {
    return {{"labels", model(batch["features"]).argmax(1)}};
  }
  std::shared_ptr<Engine> get_engine() override {
    return std::make_shared<DeviceEngine>(DeviceEngineOptions{.device = torch::kCPU});
  }
  data::Loaders get_loaders() override { return toy::loaders(); }
  Model get_model() override { return torch::nn::Sequential(torch::nn::Linear(4, 3)); }
  Criterion get_criterion() override { return torch::nn::CrossEntropyLoss(); }
  optim::OptimizerSpec get_optimizer() override { return optim::SGD{.lr = 0.1}; }
  optim::SchedulerSpec get_scheduler() override { return optim::ExponentialLR{.gamma = 0.5}; }
  Callbacks get_callbacks() override { return {AccuracyCallback({.num_classes = 3})}; }
};

TEST(Runner, EveryPartCanBeOverridden) {
  Custom runner;
  const auto result = runner.train({.num_epochs = 2, .console = false});
  EXPECT_EQ(runner.batches, 2 * (7 + 3));
  EXPECT_NEAR(result.last_metrics.at("train").at("twice"),
              2 * result.last_metrics.at("train").at("loss"), 1e-9);
  EXPECT_EQ(result.last_metrics.at("valid").count("accuracy01"), 1u);
  EXPECT_DOUBLE_EQ(result.last_metrics.at(kEpochKey).at("lr"), 0.05) << "halved after epoch 1";
}

TEST(Runner, AModelMadeInGetModelDependsOnTheSeed) {
  const auto hash = [](std::uint64_t seed) {
    return Custom().train({.seed = seed, .console = false}).weights_hash;
  };
  torch::manual_seed(123);
  const auto first = hash(5);
  EXPECT_EQ(hash(5), first);
  EXPECT_NE(hash(6), first);
}

TEST(Runner, AMetricOnlyTheCustomRunnerKnowsCanSelect) {
  const auto result = Custom().train({.num_epochs = 2,
                                      .valid_loader = "valid",
                                      .valid_metric = "twice",
                                      .minimize_valid_metric = true,
                                      .console = false});
  EXPECT_EQ(result.best_metric, result.best_metrics.at("valid").at("twice"));
  EXPECT_THAT(toy::error_of([] {
                Custom().train({.valid_loader = "valid",
                                .valid_metric = "twise",
                                .minimize_valid_metric = true,
                                .console = false});
              }),
              HasSubstr("'twice'"));
}

TEST(EvaluateLoader, GivesWhatTrainingSaw) {
  TrainOptions options = toy::options();
  options.callbacks = {AccuracyCallback({.num_classes = 3})};
  SupervisedRunner runner;
  const auto result = runner.train(options);
  const Metrics metrics = runner.evaluate_loader(
      {.loader = options.loaders.at("valid"), .callbacks = {AccuracyCallback({.num_classes = 3})}});
  EXPECT_EQ(metrics.at("loss"), result.last_metrics.at("valid").at("loss"));
  EXPECT_EQ(metrics.at("accuracy01"), result.last_metrics.at("valid").at("accuracy01"));
}

// The hooks of a run, in their order, without backward.
TEST(EvaluateLoader, CallsTheHooksOfARunOfOneEpoch) {
  std::vector<std::string> calls;
  auto hooks = std::make_shared<toy::Hooks>();
  const auto note = [&](std::string name) { return [&, name](State&) { calls.push_back(name); }; };
  hooks->run_start = note("run_start");
  hooks->epoch_start = note("epoch_start");
  hooks->loader_start = note("loader_start");
  hooks->forward = note("forward");
  hooks->backward = note("backward");
  hooks->step = note("step");
  hooks->loader_end = note("loader_end");
  hooks->epoch_end = [&](State& s) {
    calls.push_back("epoch_end");
    EXPECT_EQ(s.epoch_metrics.size(), 1u) << "no learning rate";
    EXPECT_FALSE(s.can_snapshot);
    EXPECT_EQ(s.optimizer, nullptr);
    s.request_stop("has no effect");
  };
  hooks->run_end = note("run_end");
  SupervisedRunner().evaluate_loader({.loader = {toy::points(4), {.batch_size = 4}},
                                      .model = toy::model(),
                                      .criterion = torch::nn::CrossEntropyLoss(),
                                      .callbacks = {hooks}});
  EXPECT_THAT(calls, testing::ElementsAre("run_start", "epoch_start", "loader_start", "forward",
                                          "step", "loader_end", "epoch_end", "run_end"));
}

TEST(EvaluateLoader, NeedsNoCallbacksAndLeavesTheModelAlone) {
  const Model model(toy::model());
  const auto before = weights_hash(model.weights());
  const Metrics metrics =
      SupervisedRunner().evaluate_loader({.loader = {toy::points(20), {.batch_size = 8}},
                                          .model = model,
                                          .criterion = torch::nn::CrossEntropyLoss()});
  EXPECT_GT(metrics.at("loss"), 0);
  EXPECT_EQ(weights_hash(model.weights()), before);
}

TEST(EvaluateLoader, RefusesWhatBelongsToTraining) {
  SupervisedRunner runner;
  EXPECT_THAT(toy::error_of([&] {
                runner.evaluate_loader({.loader = {toy::points(4)},
                                        .model = toy::model(),
                                        .callbacks = {CheckpointCallback()}});
              }),
              HasSubstr("CheckpointCallback"));
  EXPECT_THAT(toy::error_of([&] { runner.evaluate_loader({.loader = {toy::points(4)}}); }),
              HasSubstr("model"));
  EXPECT_THAT(toy::error_of([&] {
                runner.evaluate_loader({.loader = {toy::points(0)}, .model = toy::model()});
              }),
              HasSubstr("empty"));
}

TEST(EvaluateLoader, TakesWeightsFromACheckpoint) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  const auto result = toy::train(options);
  const Metrics metrics =
      SupervisedRunner().evaluate_loader({.loader = options.loaders.at("valid"),
                                          .model = toy::model(99),
                                          .criterion = torch::nn::CrossEntropyLoss(),
                                          .resume = result.last_checkpoint->string()});
  EXPECT_EQ(metrics.at("loss"), result.last_metrics.at("valid").at("loss"));
}

TEST(EvaluateLoader, CallbacksSeeTheNameOfTheLoader) {
  const auto evaluate = [](const std::string& name) {
    return SupervisedRunner().evaluate_loader(
        {.loader = {toy::points(4), {.batch_size = 4}},
         .model = toy::model(),
         .callbacks = {ControlFlowCallback(AccuracyCallback({.num_classes = 3}),
                                           {.loaders = {"test"}})},
         .name = name});
  };
  EXPECT_TRUE(evaluate("test").contains("accuracy01"));
  EXPECT_FALSE(evaluate("valid").contains("accuracy01"));
}

TEST(PredictLoader, UsesThePredictBatchOfTheRunner) {
  Custom runner;
  runner.train({.console = false});
  const auto labels =
      runner.predict_loader({.loader = {toy::points(9), {.batch_size = 4}}}).concat("labels");
  EXPECT_EQ(labels.sizes(), (std::vector<std::int64_t>{9}));
  EXPECT_EQ(labels.scalar_type(), torch::kLong);
}

TEST(Runner, TrainsTwiceInARow) {
  SupervisedRunner runner;
  const auto first = runner.train(toy::options());
  EXPECT_EQ(runner.train(toy::options()).weights_hash, first.weights_hash);
  TrainOptions onward = toy::options();
  onward.model = first.model;
  EXPECT_NE(runner.train(onward).weights_hash, first.weights_hash) << "a trained model trains on";
}

}  // namespace
}  // namespace lockstep
