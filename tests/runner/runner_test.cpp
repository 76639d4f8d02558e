#include "lockstep/runner/runner.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/control_flow.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/checkpoint/weights_file.h"
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

// Gives its data sets, and leaves the loaders to Runner.
class WithData : public SupervisedRunner {
 public:
  std::vector<std::string> seen;    // "loader batch_size shuffle"
  std::vector<double> first_batch;  // of 'valid'
  std::uint64_t seed = 0;
  HParams hparams;

  struct Recorder : Logger {
    int records = 0;
    void log_metrics(const Record&) override { ++records; }
  };
  std::shared_ptr<Recorder> logger = std::make_shared<Recorder>();

 protected:
  // From the last sample to the first.
  struct Backwards : data::Sampler {
    std::int64_t size() const override { return 40; }
    std::vector<std::int64_t> indices(std::int64_t) const override {
      std::vector<std::int64_t> order;
      for (std::int64_t i = size(); i > 0; --i) order.push_back(i - 1);
      return order;
    }
  };

  Datasets get_datasets() override {
    return {{"train", toy::points(50)}, {"valid", toy::points(40, 2)}};
  }
  Samplers get_samplers() override { return {{"valid", std::make_shared<Backwards>()}}; }
  std::optional<std::uint64_t> get_seed() override { return 5; }
  HParams get_hparams() override { return {{"width", std::int64_t{16}}}; }
  std::vector<std::shared_ptr<Logger>> get_loggers() override { return {logger}; }

  void on_run_start(State& s) override {
    seed = s.seed;
    hparams = s.hparams;
    for (const auto& [name, loader] : s.loaders) {
      seen.push_back(fmt::format("{} {} {}", name, loader.options().batch_size,
                                 loader.options().shuffle ? "shuffled" : "in order"));
    }
  }
  void on_batch_start(State& s) override {
    if (s.loader != "valid" || !first_batch.empty()) return;
    first_batch.push_back(s.batch["features"][0][0].item<double>());
  }
};

TEST(Runner, MakesLoadersOfDatasets) {
  TrainOptions options = toy::options();
  options.loaders = {};
  options.num_epochs = 1;
  WithData runner;
  runner.train(options);
  EXPECT_THAT(runner.seen, testing::ElementsAre("train 32 shuffled", "valid 32 in order"));
  const Batch last = toy::points(40, 2)->gather(std::vector<std::int64_t>{39}, {});
  EXPECT_EQ(runner.first_batch.at(0), last["features"][0][0].item<double>()) << "by the sampler";
  EXPECT_EQ(runner.seed, 5u);
  EXPECT_TRUE(runner.hparams.contains("width"));
  EXPECT_EQ(runner.logger->records, 3) << "train, valid and the epoch";
}

TEST(Runner, OptionsOfLoadersApplyToItsDatasets) {
  TrainOptions options = toy::options();
  options.loaders = {{"train", {toy::points(10), {.batch_size = 16}}},
                     {"valid", {toy::points(10), {.batch_size = 4, .shuffle = true}}}};
  options.num_epochs = 1;
  WithData runner;
  const auto result = runner.train(options);
  EXPECT_THAT(runner.seen, testing::ElementsAre("train 16 in order", "valid 4 in order"));
}

TEST(Runner, RefusesASamplerOfNoLoader) {
  struct Wrong : WithData {
    Datasets get_datasets() override { return {{"train", toy::points(50)}}; }
  };
  TrainOptions options = toy::options();
  options.loaders = {};
  options.valid_loader.reset();
  EXPECT_THAT(toy::error_of([&] { Wrong().train(options); }),
              HasSubstr("get_samplers: there is no loader 'valid'"));
  struct Empty : SupervisedRunner {
    Datasets get_datasets() override { return {{"train", nullptr}}; }
  };
  EXPECT_THAT(toy::error_of([&] { Empty().train(options); }),
              HasSubstr("get_datasets: 'train': expected a data set"));
}

TEST(Runner, AModelMadeInGetModelDependsOnTheSeed) {
  const auto hash = [](std::uint64_t seed) {
    return Custom().train({.seed = seed, .console = false}).weights_hash;
  };
  manual_seed(123);
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

TEST(EvaluateLoader, TakesAFileOfAnotherTypeAndOtherNames) {
  const TemporaryDirectory folder;
  StateDict file;
  for (const auto& [name, tensor] : Model(toy::model(5)).weights()) {
    file.set("net." + name,
             tensor.is_floating_point() ? tensor.detach().to(torch::kFloat64) : tensor);
  }
  checkpoint::save_weights(folder / "a.pth", file);
  const auto loss = [&](const Weights& weights, const Model& model) {
    return SupervisedRunner()
        .evaluate_loader({.loader = {toy::points(20), {.batch_size = 10}},
                          .model = model,
                          .criterion = torch::nn::CrossEntropyLoss(),
                          .weights = weights})
        .at("loss");
  };
  const double expected = loss({}, toy::model(5));
  EXPECT_EQ(loss({folder / "a.pth", {.remove_prefix = "net."}}, toy::model(6)), expected);
  toy::Warnings warnings;
  loss({folder / "a.pth", {.remove_prefix = "net.", .skip = {"4.*"}}}, toy::model(6));
  EXPECT_THAT(warnings.texts, testing::ElementsAre(HasSubstr("model keeps its own 4.weight")));
  const auto logits = [](const Weights& from, const Model& model) {
    SupervisedRunner runner;
    return runner
        .predict_loader(
            {.loader = {toy::points(20), {.batch_size = 20}}, .model = model, .weights = from})
        .concat("logits");
  };
  EXPECT_TRUE(logits({folder / "a.pth", {.remove_prefix = "net."}}, toy::model(6))
                  .equal(logits({}, toy::model(5))));
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

// A run with something of everything that must go on: dropout, batch norm, Adam, a scheduler, early
// stopping, the best epoch.
TrainOptions to_go_on(std::int64_t num_epochs) {
  TrainOptions options = toy::options();
  options.num_epochs = num_epochs;
  options.scheduler = optim::warmup(9, optim::ExponentialLR{.gamma = 0.8});
  options.callbacks = {AccuracyCallback({.num_classes = 3}),
                       EarlyStoppingCallback({.patience = 8})};
  options.load_best_on_end = true;
  options.keep_run = true;
  return options;
}

TEST(ContinueTraining, IsOneLongerRun) {
  const auto straight = SupervisedRunner().train(to_go_on(6));
  SupervisedRunner runner;
  runner.train(to_go_on(2));
  runner.continue_training({.num_epochs = 3});
  const auto result = runner.continue_training({.num_epochs = 6});
  EXPECT_EQ(result.weights_hash, straight.weights_hash);
  EXPECT_EQ(result.history, straight.history);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_EQ(result.best_epoch, straight.best_epoch);
  EXPECT_EQ(weights_hash(result.model.weights()), weights_hash(straight.model.weights()))
      << "load_best_on_end";
}

TEST(ContinueTraining, CountsStepsToo) {
  TrainOptions options = to_go_on(1);
  options.steps_per_epoch = 4;
  options.num_steps = 12;
  const auto straight = SupervisedRunner().train(options);
  options.model = toy::model();
  options.num_steps = 8;
  SupervisedRunner runner;
  runner.train(options);
  const auto result = runner.continue_training({.num_steps = 12});
  EXPECT_EQ(result.steps, 4);
  EXPECT_EQ(result.weights_hash, straight.weights_hash);
}

// The exceptions from "one longer run" in runner.h that do not refuse.
TEST(ContinueTraining, KeepsTheEvaluationOfTheLastEpochAndItsEnd) {
  TrainOptions options = toy::options();
  options.num_epochs = 6;
  options.valid_every = 2;
  options.keep_run = true;
  const auto straight = SupervisedRunner().train(options);
  options.model = toy::model();
  options.num_epochs = 3;
  SupervisedRunner runner;
  runner.train(options);
  const auto result = runner.continue_training({.num_epochs = 6});
  EXPECT_EQ(result.weights_hash, straight.weights_hash);
  EXPECT_FALSE(straight.history.at(3).contains("valid"));
  EXPECT_TRUE(result.history.at(3).contains("valid"));

  options.model = toy::model();
  options.num_epochs = 1;
  options.num_steps = 5;  // of the 7 of an epoch
  runner.train(options);
  const auto longer = runner.continue_training({.num_steps = 12});
  EXPECT_EQ(longer.steps, 7);
  EXPECT_EQ(longer.epochs, 1) << "a whole epoch, the second one";
}

// The best epoch may be one of the first run; its weights are in no file.
TEST(ContinueTraining, RemembersTheBestWeights) {
  TrainOptions options = to_go_on(2);
  std::string best;
  auto worse = std::make_shared<toy::Hooks>();
  worse->loader_end = [&](State& s) {
    if (s.loader != "valid") return;
    s.loader_metrics["loss"] = static_cast<double>(s.progress.epoch);
    if (s.progress.epoch == 1) best = weights_hash(s.model.weights());
  };
  options.callbacks.add(worse);
  SupervisedRunner runner;
  runner.train(options);
  toy::Warnings warnings;
  const auto result = runner.continue_training({.num_epochs = 4});
  EXPECT_EQ(result.best_epoch, 1);
  EXPECT_EQ(weights_hash(result.model.weights()), best);
  EXPECT_THAT(warnings.texts, testing::IsEmpty());
}

TEST(ContinueTraining, GoesOnInTheSameFolder) {
  const TemporaryDirectory folder;
  TrainOptions options = to_go_on(2);
  options.logdir = folder / "run";
  SupervisedRunner runner;
  runner.train(options);
  const auto result = runner.continue_training({.num_epochs = 3});
  EXPECT_FALSE(std::filesystem::exists(folder / "run/previous"));
  const std::string csv = read_file(folder / "run/logs/valid.csv");
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 3) << csv;
  EXPECT_TRUE(std::filesystem::exists(*result.last_checkpoint));
}

TEST(ContinueTraining, SaysWhyItCannot) {
  SupervisedRunner runner;
  EXPECT_EQ(toy::error_of([&] { runner.continue_training({.num_epochs = 3}); }),
            "continue_training: this runner has no finished train() to go on from");
  TrainOptions options = toy::options();
  options.scheduler = optim::OneCycleLR{.max_lr = 0.1};
  runner.train(options);
  EXPECT_THAT(toy::error_of([&] { runner.continue_training({.num_epochs = 5}); }),
              testing::EndsWith("set its option keep_run to true"));
  const TemporaryDirectory folder;
  options.model = toy::model();
  options.logdir = folder / "logs";
  runner.train(options);
  EXPECT_THAT(
      toy::error_of([&] { runner.continue_training({.num_epochs = 5}); }),
      testing::AllOf(HasSubstr("keep_run to true, or call train() again"),
                     HasSubstr((folder / "logs").string()), HasSubstr(".resume = \"last\"")));
  options.logdir.reset();
  options.model = toy::model();
  options.keep_run = true;
  runner.train(options);
  EXPECT_EQ(toy::error_of([&] { runner.continue_training({}); }),
            "continue_training: expected num_epochs or num_steps, got none");
  EXPECT_THAT(toy::error_of([&] { runner.continue_training({.num_epochs = 5}); }),
              HasSubstr("this cycle has 35 steps, the one in the checkpoint has 21"));

  // An optimizer whose state cannot be saved trains nevertheless.
  struct Options : torch::optim::OptimizerCloneableOptions<Options> {
    double get_lr() const override { return 0.1; }
    void set_lr(const double) override {}
  };
  struct Idle : torch::optim::Optimizer {
    explicit Idle(std::vector<torch::Tensor> parameters)
        : Optimizer(std::move(parameters), std::make_unique<Options>()) {}
    torch::Tensor step(LossClosure) override { return {}; }
  };
  options = toy::options();
  options.keep_run = true;
  options.optimizer = [](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Idle>(std::move(parameters));
  };
  runner.train(options);
  EXPECT_THAT(toy::error_of([&] { runner.continue_training({.num_epochs = 5}); }),
              testing::AllOf(HasSubstr("continue_training: the last run cannot go on"),
                             HasSubstr("its state cannot be saved")));
}

}  // namespace
}  // namespace lockstep
