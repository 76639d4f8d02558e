#include "lockstep/train/loop.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/log/event_file.h"
#include "lockstep/log/event_scalars.h"
#include "lockstep/loss/embedding_loss.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Loop, CallsTheHooksInTheOrderThatIsDrawn) {
  std::vector<std::string> calls;
  auto hooks = std::make_shared<toy::Hooks>();
  const auto note = [&](std::string name) { return [&, name](State&) { calls.push_back(name); }; };
  hooks->run_start = note("run_start");
  hooks->epoch_start = note("epoch_start");
  hooks->loader_start = note("loader_start");
  hooks->batch_start = note("batch_start");
  hooks->forward = note("forward");
  hooks->backward = note("backward");
  hooks->batch_end = note("batch_end");
  hooks->loader_end = note("loader_end");
  hooks->epoch_end = note("epoch_end");
  hooks->run_end = note("run_end");
  hooks->exception = note("exception");
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.loaders = {{"train", {toy::points(2), {.batch_size = 2}}},
                     {"valid", {toy::points(2), {.batch_size = 2}}}};
  options.callbacks = {hooks};
  toy::train(options);
  EXPECT_THAT(calls,
              ElementsAre("run_start", "epoch_start", "loader_start", "batch_start", "forward",
                          "backward", "batch_end", "loader_end", "loader_start", "batch_start",
                          "forward", "batch_end", "loader_end", "epoch_end", "run_end"));
}

TEST(Loop, LearnsAndReturnsTheTrainedModel) {
  TrainOptions options = toy::options();
  options.num_epochs = 60;
  options.callbacks = {AccuracyCallback({.num_classes = 3})};
  const auto result = toy::train(options);
  EXPECT_GT(result.last_metrics.at("train").at("accuracy01"), 0.6) << "a third is chance";
  EXPECT_EQ(result.weights_hash, weights_hash(options.model.weights()))
      << "the caller's own model is the trained one";
  EXPECT_EQ(result.history.size(), 60u);
  EXPECT_GT(result.train_samples_per_second, 0);
}

TEST(Loop, TheSameRunGivesTheSameBits) {
  const std::string first = toy::train(toy::options()).weights_hash;
  EXPECT_EQ(toy::train(toy::options()).weights_hash, first);
  TrainOptions other = toy::options();
  other.seed = 43;
  EXPECT_NE(toy::train(other).weights_hash, first);
}

TEST(Loop, WhatHappensBetweenDoesNotTouchTheRandomNumbersOfARun) {
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [](State&) { torch::rand({17}); };
  TrainOptions noisy = toy::options();
  noisy.callbacks = {hooks};
  EXPECT_EQ(toy::train(noisy).weights_hash, toy::train(toy::options()).weights_hash);
}

TEST(Loop, PrefetchingChangesNothing) {
  TrainOptions options = toy::options();
  options.loaders = {
      {"train", {toy::points(50), {.batch_size = 8, .shuffle = true, .prefetch = 3}}},
      {"valid", {toy::points(30, 2), {.batch_size = 10}}}};
  EXPECT_EQ(toy::train(options).weights_hash, toy::train(toy::options()).weights_hash);
}

TEST(Loop, OnExceptionAndOnRunEndReachAllCallbacks) {
  std::vector<std::string> calls;
  auto bad = std::make_shared<toy::Hooks>();
  bad->batch_end = [](State& s) {
    if (s.loader_batch == 2) throw Error("boom");
  };
  auto witness = std::make_shared<toy::Hooks>();
  witness->batch_end = [&](State& s) {
    calls.push_back("batch " + std::to_string(s.loader_batch));
  };
  witness->exception = [&](State& s) { calls.push_back(s.exception ? "exception" : "nothing"); };
  witness->run_end = [&](State&) { calls.push_back("run_end"); };
  TrainOptions options = toy::options();
  options.callbacks = {bad, witness};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), testing::EndsWith("boom"));
  EXPECT_THAT(calls, ElementsAre("batch 1", "batch 2", "exception", "run_end"));
}

TEST(Loop, AnErrorWhileEndingDoesNotHideTheFirst) {
  auto bad = std::make_shared<toy::Hooks>();
  bad->forward = [](State&) { throw Error("the cause"); };
  bad->run_end = [](State&) { throw Error("the aftermath"); };
  TrainOptions options = toy::options();
  options.callbacks = {bad};
  toy::Warnings warnings;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), testing::EndsWith("the cause"));
  EXPECT_THAT(warnings.texts, ElementsAre(HasSubstr("the aftermath")));
}

TEST(Loop, TheBestEpochIsTheOneTheMetricSays) {
  // A validation loss that is best in epoch 2.
  TrainOptions options = toy::options();
  options.valid_metric = "loss";
  std::map<std::int64_t, std::string> hashes;
  auto hash = std::make_shared<toy::Hooks>();
  hash->loader_end = [&](State& s) {
    if (s.loader != "valid") return;
    s.loader_metrics["loss"] = std::vector{0.9, 0.1, 0.5}[s.progress.epoch - 1];
    hashes[s.progress.epoch] = weights_hash(s.model.weights());
  };
  options.callbacks = {hash};
  options.load_best_on_end = true;
  const auto result = toy::train(options);
  EXPECT_EQ(result.best_epoch, 2);
  EXPECT_EQ(result.best_metric, 0.1);
  EXPECT_EQ(weights_hash(result.model.weights()), hashes[2]) << "load_best_on_end";
  EXPECT_EQ(result.weights_hash, hashes[3]) << "the hash is of the last step";
}

// The accuracy gets worse: the first epoch is the best, although no option says so.
TEST(Loop, AMetricItselfSaysWhichOfItsValuesIsBetter) {
  TrainOptions options = toy::options();
  options.valid_metric = "accuracy01";
  auto worse = std::make_shared<toy::Hooks>();
  worse->loader_end = [](State& s) { s.loader_metrics["accuracy01"] = 1.0 / s.progress.epoch; };
  options.callbacks = {AccuracyCallback({.num_classes = 3}), worse};
  EXPECT_EQ(toy::train(options).best_epoch, 1);
  options.minimize_valid_metric = true;
  EXPECT_EQ(toy::train(options).best_epoch, 3) << "the user's option has priority";
}

TEST(Loop, AMetricOfWhichNothingSaysWhatIsBetterIsRefused) {
  TrainOptions options = toy::options();
  options.valid_metric = "mine";
  struct Mine : Callback {
    explicit Mine(std::optional<Better> said) : said(said) {}
    CallbackTraits traits() const override {
      return {.metric_names = std::vector<std::string>{"mine"}};
    }
    std::optional<Better> better(std::string_view metric) const override {
      return metric == "mine" ? said : std::nullopt;
    }
    void on_loader_end(State& s) override { s.loader_metrics["mine"] = s.progress.epoch; }
    std::optional<Better> said;
  };
  options.callbacks = {Mine(std::nullopt)};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::AllOf(HasSubstr("'mine'"), HasSubstr("minimize_valid_metric")));
  options.minimize_valid_metric = false;
  EXPECT_EQ(toy::train(options).best_epoch, 3);
  options.minimize_valid_metric.reset();
  options.callbacks = {Mine(Better::kSmaller)};
  EXPECT_EQ(toy::train(options).best_epoch, 1);
}

TEST(Loop, TheFirstLineSaysWhatABatchIs) {
  TrainOptions options = toy::options();
  options.console = true;
  options.ddp = true;
  options.workers = 1;
  options.shards = 2;
  testing::internal::CaptureStdout();
  toy::train(options);
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(output.substr(0, output.find('\n')),
            "3 epochs, 1 worker, train: 50 samples, batch 16 = 2 shards x 8");
}

TEST(Loop, ScalesLearningRatesWithTheSamplesOfAStep) {
  TrainOptions options = toy::options();
  options.console = true;
  options.ddp = true;
  options.workers = 1;
  options.shards = 2;
  options.accumulation_steps = 3;
  options.optimizer = {optim::SGD{.lr = 0.5, .momentum = 0.9}, {{.names = "*.bias", .lr = 0.25}}};
  options.scheduler = optim::CyclicLR{.max_lr = 1.0, .step_size_up = 2};
  options.lr_base_batch_size = 32;
  std::vector<double> lrs;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State& state) { lrs.push_back(state.optimizer->lr()); };
  hooks->step = [&](State& state) { lrs.push_back(state.optimizer->lr()); };
  options.callbacks = {hooks};
  testing::internal::CaptureStdout();
  toy::train(options);
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(output.substr(0, output.find('\n')),
            "3 epochs, 1 worker, train: 50 samples, batch 16 = 2 shards x 8, lr x 1.5 for steps of "
            "48 samples instead of 32");
  EXPECT_EQ(lrs.front(), 0.75);
  EXPECT_EQ(*std::ranges::max_element(lrs), 1.5);
}

TEST(Loop, WarnsThatALossSeesTheSamplesOfAShard) {
  TrainOptions options = toy::options();
  options.criterion = SupervisedContrastiveLoss();
  options.num_epochs = 1;
  {
    const toy::Warnings warnings;
    toy::train(options);
    EXPECT_THAT(warnings.texts, testing::Not(testing::Contains(HasSubstr("shards"))));
  }
  options.ddp = true;
  options.workers = 1;
  options.shards = 2;
  const toy::Warnings warnings;
  toy::train(options);
  EXPECT_THAT(warnings.texts, testing::Contains(testing::AllOf(
                                  HasSubstr("SupervisedContrastiveLoss(temperature=0.1)"),
                                  HasSubstr("each of the 2 shards"))));
}

// Every update has the same samples, however many shards they are split into.
TEST(Loop, AGlobalBatchSizeTrainsTheSameForAnyNumberOfShards) {
  const auto run = [](int shards) {
    torch::manual_seed(3);
    TrainOptions options = toy::options();
    options.model = torch::nn::Sequential(torch::nn::Linear(4, 3));
    options.optimizer = optim::SGD{.lr = 0.1};
    options.loaders = {{"train", {toy::points(50), {.shuffle = true, .global_batch_size = 16}}}};
    options.valid_loader = std::nullopt;
    options.ddp = true;
    options.workers = 1;
    options.shards = shards;
    return toy::train(options);
  };
  const auto one = run(1), three = run(3);
  EXPECT_TRUE(torch::allclose(one.model.parameters()[0].second, three.model.parameters()[0].second,
                              1e-5, 1e-6));
  EXPECT_NEAR(one.last_metrics.at("train").at("loss"), three.last_metrics.at("train").at("loss"),
              1e-5);
}

TEST(Loop, StopRequestsEndTheRunAfterTheEpoch) {
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [](State& s) { s.request_stop("enough"); };
  TrainOptions options = toy::options();
  options.callbacks = {hooks};
  const auto result = toy::train(options);
  EXPECT_EQ(result.history.size(), 1u);
  EXPECT_EQ(result.stop_reason, "enough");
  EXPECT_EQ(result.last_metrics.count("valid"), 1u) << "the epoch was finished";
}

TEST(Loop, TheSummarySaysWhatCameOut) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  const auto result = toy::train(options);
  const auto summary = nlohmann::json::parse(read_file(folder / "run/summary.json"));
  EXPECT_EQ(summary["weights_hash"], result.weights_hash);
  EXPECT_EQ(summary["workers"], 1);
  EXPECT_EQ(summary["shards"], 1);
  EXPECT_EQ(summary["global_batch_size"], 8);
  EXPECT_EQ(summary["last"]["epoch"], 3);
  EXPECT_EQ(summary["best"]["metrics"]["valid"]["loss"], result.best_metric);
  EXPECT_TRUE(fs::exists(summary["best"]["checkpoint"].get<std::string>()));
  EXPECT_TRUE(fs::exists(folder / "run/logs/train.csv"));
  EXPECT_TRUE(fs::exists(folder / "run/tensorboard/valid"));
}

TEST(Loop, ProfileWritesATrace) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.profile = true;
  toy::train(options);
  EXPECT_TRUE(fs::exists(folder / "run/profile.json"));
}

// Runs `options` with `stop` as an additional callback that throws at some point, then resumes.
std::string hash_after_resume(TrainOptions options, const fs::path& logdir, CallbackPtr stop) {
  options.logdir = logdir;
  TrainOptions first = options;
  first.model = toy::model();
  first.callbacks.add(stop);
  first.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
  EXPECT_THAT(toy::error_of([&] { toy::train(first); }), testing::EndsWith("power cut"));
  TrainOptions second = options;
  second.model = toy::model(99);
  second.resume = "last";
  return toy::train(second).weights_hash;
}

struct ResumeCase {
  const char* name;
  std::function<void(TrainOptions&)> change;
};

void PrintTo(const ResumeCase& c, std::ostream* out) {
  *out << c.name;
}

class Resume : public testing::TestWithParam<ResumeCase> {
 protected:
  TrainOptions options() const {
    TrainOptions options = toy::options();
    GetParam().change(options);
    return options;
  }
  static CallbackPtr power_cut(std::int64_t epoch, std::string loader, std::int64_t batch) {
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_start = [=](State& s) {
      if (s.progress.epoch == epoch && s.loader == loader && s.loader_batch == batch) {
        throw Error("power cut");
      }
    };
    return hooks;
  }
  TemporaryDirectory folder_;
};

TEST_P(Resume, InTheMiddleOfTrainingEndsWithTheSameBits) {
  const auto straight = toy::train(options());
  EXPECT_EQ(hash_after_resume(options(), folder_ / "a", power_cut(2, "train", 5)),
            straight.weights_hash);
}

TEST_P(Resume, InTheMiddleOfValidationEndsWithTheSameBits) {
  const auto straight = toy::train(options());
  EXPECT_EQ(hash_after_resume(options(), folder_ / "a", power_cut(2, "valid", 2)),
            straight.weights_hash);
}

TEST_P(Resume, BetweenEpochsEndsWithTheSameBitsAndMetrics) {
  TrainOptions straight_options = options();
  straight_options.callbacks.add(AccuracyCallback({.num_classes = 3}));
  const auto straight = toy::train(straight_options);

  TrainOptions first = options();
  first.callbacks.add(AccuracyCallback({.num_classes = 3}));
  first.logdir = folder_ / "b";
  first.callbacks.add(power_cut(3, "train", 1));
  EXPECT_THAT(toy::error_of([&] { toy::train(first); }), testing::EndsWith("power cut"));
  TrainOptions second = options();
  second.callbacks.add(AccuracyCallback({.num_classes = 3}));
  second.logdir = folder_ / "b";
  second.model = toy::model(99);
  second.resume = "last";
  const auto resumed = toy::train(second);
  EXPECT_EQ(resumed.weights_hash, straight.weights_hash);
  EXPECT_EQ(resumed.history, straight.history);
  EXPECT_EQ(resumed.best_epoch, straight.best_epoch);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, Resume,
    testing::Values(ResumeCase{"Adam", [](TrainOptions&) {}},
                    ResumeCase{"SgdMomentumStepLr",
                               [](TrainOptions& o) {
                                 o.optimizer = optim::SGD{.lr = 0.05, .momentum = 0.9};
                                 o.scheduler = optim::StepLR{.step_size = 1, .gamma = 0.5};
                               }},
                    ResumeCase{
                        "OneCycleEveryBatch",
                        [](TrainOptions& o) { o.scheduler = optim::OneCycleLR{.max_lr = 0.05}; }},
                    ResumeCase{"LookaheadLambCyclic",
                               [](TrainOptions& o) {
                                 o.optimizer =
                                     optim::Lookahead{.optimizer = optim::Lamb{.lr = 0.05}, .k = 3};
                                 o.scheduler = optim::CyclicLR{.max_lr = 0.1, .step_size_up = 4};
                                 o.lr_base_batch_size = 4;
                               }},
                    ResumeCase{"Plateau",
                               [](TrainOptions& o) {
                                 o.scheduler = optim::ReduceLROnPlateau{
                                     .factor = 0.5, .patience = 0, .threshold = 10};
                               }},
                    ResumeCase{"Accumulation",
                               [](TrainOptions& o) {
                                 o.accumulation_steps = 3;
                                 o.clip_grad_norm = 0.5;
                               }},
                    ResumeCase{"TorchOptimizer",
                               [](TrainOptions& o) {
                                 o.optimizer = [](std::vector<torch::Tensor> parameters) {
                                   return std::make_unique<torch::optim::Adam>(
                                       parameters, torch::optim::AdamOptions(0.01));
                                 };
                               }}),
    [](const auto& info) { return info.param.name; });

TEST(ResumedRun, MetricsOfTheBrokenEpochAreWhole) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.callbacks = {AccuracyCallback({.num_classes = 3}), AUCCallback({.num_classes = 3}),
                       PrecisionRecallF1SupportCallback({.num_classes = 3})};
  const auto straight = toy::train(options);

  const auto fresh = [&] {
    TrainOptions o = toy::options();
    o.callbacks = {AccuracyCallback({.num_classes = 3}), AUCCallback({.num_classes = 3}),
                   PrecisionRecallF1SupportCallback({.num_classes = 3}),
                   CheckpointCallback({.save_every_batches = 1})};
    o.logdir = folder / "run";
    return o;
  };
  TrainOptions first = fresh();
  auto cut = std::make_shared<toy::Hooks>();
  cut->batch_start = [](State& s) {
    if (s.progress.epoch == 3 && s.loader == "valid" && s.loader_batch == 3) throw Error("cut");
  };
  first.callbacks.add(cut);
  EXPECT_THAT(toy::error_of([&] { toy::train(first); }), testing::EndsWith("cut"));
  TrainOptions second = fresh();
  second.resume = "last";
  EXPECT_EQ(toy::train(second).history, straight.history);
}

TEST(ResumedRun, GoesOnForMoreEpochs) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  const auto straight = [&] {
    TrainOptions o = toy::options();
    o.num_epochs = 5;
    return toy::train(o);
  }();
  options.logdir = folder / "run";
  toy::train(options);
  options.model = toy::model();
  options.num_epochs = 5;
  options.resume = "last";
  EXPECT_EQ(toy::train(options).weights_hash, straight.weights_hash);
}

TEST(ResumedRun, FromAnotherFolderLeavesThatAlone) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "a";
  toy::train(options);
  const auto before = read_file(folder / "a/logs/train.csv");
  options.logdir = folder / "b";
  options.num_epochs = 4;
  options.resume = (folder / "a/checkpoints/last.pth").string();
  toy::train(options);
  EXPECT_EQ(read_file(folder / "a/logs/train.csv"), before);
  EXPECT_TRUE(fs::exists(folder / "b/checkpoints/last.pth"));
}

TEST(ResumedRun, TakesTheSeedOfTheCheckpointUnlessTold) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.seed = 7;
  options.num_epochs = 4;
  const auto straight = toy::train(options).weights_hash;
  options.model = toy::model();
  options.num_epochs = 2;
  options.logdir = folder / "run";
  toy::train(options);
  options.seed.reset();
  options.model = toy::model();
  options.num_epochs = 4;
  options.resume = "last";
  EXPECT_EQ(toy::train(options).weights_hash, straight);
}

TEST(ResumedRun, AnotherModelIsRefusedByName) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  toy::train(options);
  options.model = torch::nn::Sequential(torch::nn::Linear(4, 3));
  options.resume = "last";
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              testing::AllOf(HasSubstr("last.pth"), HasSubstr("0.weight"), HasSubstr("[3, 4]")));
}

TEST(ResumedRun, InsideAnEpochTheBatchSizeMayNotChange) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  auto cut = std::make_shared<toy::Hooks>();
  cut->batch_start = [](State& s) {
    if (s.loader_batch == 3) throw Error("cut");
  };
  options.callbacks = {cut, CheckpointCallback({.save_every_batches = 1})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), testing::EndsWith("cut"));
  TrainOptions second = toy::options();
  second.logdir = folder / "run";
  second.loaders = toy::loaders(/*batch_size=*/10);
  second.resume = "last";
  EXPECT_THAT(toy::error_of([&] { toy::train(second); }),
              testing::AllOf(HasSubstr("batch"), HasSubstr("inside an epoch")));
}

// Both sizes give the same number of batches, and the same largest shard.
TEST(ResumedRun, InsideAnEpochTheGlobalBatchSizeMayNotChange) {
  TemporaryDirectory folder;
  const auto options_with = [&](std::int64_t global) {
    TrainOptions options = toy::options();
    options.logdir = folder / "run";
    options.ddp = true;
    options.workers = 1;
    options.shards = 2;
    options.loaders = {{"train", {toy::points(50), {.global_batch_size = global}}}};
    options.valid_loader.reset();
    return options;
  };
  TrainOptions options = options_with(13);
  auto cut = std::make_shared<toy::Hooks>();
  cut->batch_start = [](State& s) {
    if (s.loader_batch == 3) throw Error("cut");
  };
  options.callbacks = {cut, CheckpointCallback({.save_every_batches = 1})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), testing::EndsWith("cut"));
  TrainOptions second = options_with(14);
  second.resume = "last";
  EXPECT_THAT(toy::error_of([&] { toy::train(second); }),
              testing::AllOf(HasSubstr("global_batch_size"), HasSubstr("13"), HasSubstr("14")));
}

TEST(ResumedRun, TheBestOfBeforeIsLoadedAtTheEnd) {
  TemporaryDirectory folder;
  const auto options = [&] {
    TrainOptions o = toy::options();
    o.logdir = folder / "run";
    auto script = std::make_shared<toy::Hooks>();
    script->loader_end = [](State& s) {
      if (s.loader == "valid") s.loader_metrics["loss"] = static_cast<double>(s.progress.epoch);
    };
    o.callbacks = {script};
    o.num_epochs = 1;
    return o;
  };
  const std::string best = toy::train(options()).weights_hash;
  TrainOptions second = options();
  second.num_epochs = 3;
  second.resume = "last";
  second.load_best_on_end = true;
  const auto result = toy::train(second);
  EXPECT_EQ(result.best_epoch, 1);
  EXPECT_EQ(weights_hash(result.model.weights()), best);
}

// The best weights are lost, but the run can go on.
TEST(ResumedRun, ADamagedBestDoesNotEndIt) {
  TemporaryDirectory folder;
  const auto options = [&](std::int64_t epochs) {
    TrainOptions o = toy::options();
    o.logdir = folder / "run";
    auto script = std::make_shared<toy::Hooks>();
    script->loader_end = [](State& s) {
      if (s.loader == "valid") s.loader_metrics["loss"] = static_cast<double>(s.progress.epoch);
    };
    o.callbacks = {script};
    o.num_epochs = epochs;
    return o;
  };
  toy::train(options(2));
  write_file_atomically(folder / "run/checkpoints/best.pth", "damaged");
  TrainOptions second = options(3);
  second.resume = "last";
  second.load_best_on_end = true;
  EXPECT_EQ(toy::train(second).best_epoch, 1);
}

TEST(ResumedRun, InAnotherFolderTheBestIsStillTheBest) {
  TemporaryDirectory folder;
  const auto options = [&](const char* logdir, std::int64_t epochs) {
    TrainOptions o = toy::options();
    o.logdir = folder / logdir;
    auto script = std::make_shared<toy::Hooks>();
    script->loader_end = [](State& s) {
      if (s.loader == "valid")
        s.loader_metrics["loss"] = std::vector{1, 3, 2}[s.progress.epoch - 1];
    };
    o.callbacks = {script};
    o.num_epochs = epochs;
    o.load_best_on_end = true;
    return o;
  };
  const auto first = toy::train(options("a", 2));
  TrainOptions second = options("b", 3);
  second.resume = (folder / "a/checkpoints/last.pth").string();
  const auto result = toy::train(second);
  EXPECT_EQ(result.best_epoch, 1);
  EXPECT_EQ(weights_hash(result.model.weights()), weights_hash(first.model.weights()));
  EXPECT_EQ(result.best_checkpoint, folder / "b/checkpoints/best.pth")
      << "the best one of folder b, which has no file of epoch 1";
}

TEST(ResumedRun, WhatIsBestMayChange) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.valid_loader.reset();
  const auto first = toy::train(options);
  options.valid_loader = "valid";
  options.minimize_valid_metric = false;
  options.num_epochs = 4;
  options.resume = "last";
  const auto result = toy::train(options);
  std::int64_t worst = 1;
  for (const auto& [epoch, metrics] : result.history) {
    if (metrics.at("valid").at("loss") > result.history.at(worst).at("valid").at("loss"))
      worst = epoch;
  }
  EXPECT_EQ(result.best_epoch, worst);
}

TEST(ResumedRun, InsideValidationTheRowsOfTrainingStay) {
  TemporaryDirectory folder;
  const auto options = [&] {
    TrainOptions o = toy::options();
    o.logdir = folder / "run";
    return o;
  };
  TrainOptions first = options();
  auto cut = std::make_shared<toy::Hooks>();
  cut->batch_start = [](State& s) {
    if (s.progress.epoch == 2 && s.loader == "valid" && s.loader_batch == 2) throw Error("cut");
  };
  first.callbacks = {cut, CheckpointCallback({.save_every_batches = 1})};
  EXPECT_THAT(toy::error_of([&] { toy::train(first); }), testing::EndsWith("cut"));
  TrainOptions second = options();
  second.resume = "last";
  toy::train(second);
  TrainOptions straight = toy::options();
  straight.logdir = folder / "straight";
  toy::train(straight);
  for (const char* file : {"logs/train.csv", "logs/valid.csv", "logs/_epoch_.csv"}) {
    EXPECT_EQ(read_file(folder / "run" / file), read_file(folder / "straight" / file)) << file;
  }
}

// The checkpoint was written after rows that are not in the logs any more: the machine stopped
// before they were on its disk, or the files were damaged.
TEST(ResumedRun, RowsThatTheLogsHaveLostAreWrittenAgain) {
  TemporaryDirectory folder;
  TrainOptions straight = toy::options();
  straight.logdir = folder / "straight";
  toy::train(straight);
  TrainOptions first = toy::options();
  first.logdir = folder / "run";
  first.num_epochs = 2;
  toy::train(first);
  fs::remove(folder / "run/logs/_epoch_.csv");
  for (const char* const file : {"logs/train.csv", "logs/valid.csv"}) {
    fs::resize_file(folder / "run" / file, fs::file_size(folder / "run" / file) - 10);
  }
  fs::resize_file(event_files_in(folder / "run/tensorboard/train").at(0), 60);
  TrainOptions second = toy::options();
  second.logdir = folder / "run";
  second.resume = "last";
  toy::train(second);
  for (const char* file : {"logs/train.csv", "logs/valid.csv", "logs/_epoch_.csv"}) {
    EXPECT_EQ(read_file(folder / "run" / file), read_file(folder / "straight" / file)) << file;
  }
  EXPECT_EQ(read_scalar_steps(folder / "run/tensorboard/train", "/epoch"),
            read_scalar_steps(folder / "straight/tensorboard/train", "/epoch"));
}

TEST(ResumedRun, AStoppedRunStaysStopped) {
  TemporaryDirectory folder;
  const auto options = [&](std::int64_t patience) {
    TrainOptions o = toy::options();
    o.logdir = folder / "run";
    o.num_epochs = 10;
    auto script = std::make_shared<toy::Hooks>();
    script->loader_end = [](State& s) {
      if (s.loader == "valid") s.loader_metrics["loss"] = static_cast<double>(s.progress.epoch);
    };
    o.callbacks = {script, EarlyStoppingCallback({.patience = patience})};
    return o;
  };
  const auto first = toy::train(options(2));
  EXPECT_EQ(first.history.size(), 3u);
  TrainOptions again = options(2);
  again.resume = "last";
  const auto second = toy::train(again);
  EXPECT_EQ(second.history.size(), 3u);
  EXPECT_EQ(second.weights_hash, first.weights_hash);
  TrainOptions patient = options(4);
  patient.resume = "last";
  EXPECT_EQ(toy::train(patient).history.size(), 5u);
}

// Augmentation: each sample gets its own noise.
struct Noisy : data::Dataset {
  std::int64_t size() const override { return 40; }
  Batch sample(std::int64_t index) const override {
    return {{"features", torch::full({4}, static_cast<double>(index)) + torch::randn({4})},
            {"targets", torch::tensor(index % 3)}};
  }
};

TEST(ResumedRun, AugmentationDrawsWhatTheStraightRunDrew) {
  TemporaryDirectory folder;
  const auto options = [] {
    TrainOptions o = toy::options();
    const auto noisy = std::make_shared<Noisy>();
    o.loaders = {{"train", {noisy, {.batch_size = 8, .shuffle = true}}},
                 {"valid", {noisy, {.batch_size = 8}}}};
    return o;
  };
  const auto straight = toy::train(options());
  auto cut = std::make_shared<toy::Hooks>();
  cut->batch_start = [](State& s) {
    if (s.progress.epoch == 2 && s.is_train && s.loader_batch == 4) throw Error("power cut");
  };
  EXPECT_EQ(hash_after_resume(options(), folder / "run", cut), straight.weights_hash);
}

TEST(Loop, AFailedCallbackIsNotSavedOver) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  auto bad = std::make_shared<toy::Hooks>();
  bad->epoch_end = [](State& s) {
    if (s.progress.epoch == 2) throw Error("missed it");
  };
  options.callbacks = {bad};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), testing::EndsWith("missed it"));
  const auto run = checkpoint::load(folder / "run/checkpoints/last.pth").get<StateDict>("run");
  EXPECT_EQ(run.get<std::int64_t>("epoch"), 1);
}

TEST(LogDirectory, ATypoDoesNotMoveTheEarlierRunAway) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  toy::train(options);
  options.callbacks = {EarlyStoppingCallback({.metric = MetricKey{"vald", "loss"}})};
  EXPECT_NE(toy::error_of([&] { toy::train(options); }), "");
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints/last.pth"));
  EXPECT_FALSE(fs::exists(folder / "run/previous"));
}

TEST(LogDirectory, ARerunNeverMixesTwoRuns) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  toy::train(options);
  const auto first = read_file(folder / "run/logs/train.csv");
  options.model = toy::model(3);
  toy::train(options);
  const auto second = read_file(folder / "run/logs/train.csv");
  EXPECT_EQ(std::ranges::count(second, '\n'), 4) << "a header and three epochs";
  EXPECT_NE(first, second);
  EXPECT_EQ(read_file(folder / "run/previous/1/logs/train.csv"), first);
  EXPECT_EQ(std::ranges::distance(fs::directory_iterator(folder / "run/tensorboard/train")), 1);
}

TEST(Loop, AnotherLearningRateThanTheResumedRunsIsNotTakenInSilence) {
  const TemporaryDirectory folder;
  TrainOptions first = toy::options();
  first.logdir = folder / "a";
  first.num_epochs = 1;
  toy::train(first);
  TrainOptions second = toy::options();
  second.logdir = folder / "a";
  second.resume = "last";
  second.optimizer = optim::Adam{.lr = 0.5};
  const toy::Warnings warnings;
  const auto resumed = toy::train(second);
  EXPECT_THAT(warnings.texts,
              ElementsAre(HasSubstr("began with 0.01, the options of this run say 0.5")));
  EXPECT_EQ(resumed.weights_hash, toy::train(toy::options()).weights_hash);
}

TEST(Loop, ACallbackMayBeOnSomeRanksOnly) {
  struct Somewhere : Callback {
    explicit Somewhere(Ranks where) : where_(where) {}
    CallbackTraits traits() const override { return {.ranks = where_}; }
    void on_epoch_end(State&) override { ++calls; }
    Ranks where_;
    std::uint64_t calls = 0;
  };
  const auto primary = std::make_shared<Somewhere>(Ranks::kPrimary);
  const auto others = std::make_shared<Somewhere>(Ranks::kOthers);
  auto hooks = std::make_shared<toy::Hooks>();
  std::vector<std::uint64_t> of_primary, of_others;
  hooks->run_end = [&](State& s) {
    of_primary = s.comm->vote(primary->calls);
    of_others = s.comm->vote(others->calls);
  };
  TrainOptions options = toy::options();
  options.callbacks = {primary, others, hooks};
  options.ddp = true;
  options.workers = 2;
  toy::train(options);
  EXPECT_THAT(of_primary, ElementsAre(3u, 0u));
  EXPECT_THAT(of_others, ElementsAre(0u, 3u));
}

TEST(Loop, BeginsWithGivenWeights) {
  const TemporaryDirectory folder;
  TrainOptions first = toy::options();
  first.logdir = folder / "a";
  const auto trained = toy::train(first);
  TrainOptions second = toy::options();
  second.weights = folder / "a/checkpoints/last.pth";
  second.optimizer = optim::SGD{.lr = 1e-30};
  second.num_epochs = 1;
  const auto tuned = toy::train(second);
  EXPECT_TRUE(tuned.model.parameters()[0].second.equal(trained.model.parameters()[0].second));
  EXPECT_EQ(tuned.history.size(), 1u) << "a new run";
  second.model = torch::nn::Sequential(torch::nn::Linear(4, 3));
  EXPECT_THAT(toy::error_of([&] { toy::train(second); }), HasSubstr("last.pth: "));
}

TEST(Loop, AStopThatWasRequestedInsideAnEpochSurvivesARecovery) {
  const auto run = [](bool fails) {
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->step = [fails](State& s) {
      if (s.is_train && s.loader_batch == 1) s.request_stop("enough");
      // Meanwhile a point becomes due, so that the run goes back to a moment after the request.
      if (fails) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const bool is_here = s.loader == "valid" && s.loader_batch == 2 && s.comm->rank() == 1;
      if (fails && is_here && s.restarts == 0) throw Error("cut");
    };
    TrainOptions options = toy::options();
    options.ddp = true;
    options.workers = 2;
    options.max_restarts = 1;
    options.callbacks.add(hooks);
    return toy::train(options);
  };
  const TrainResult straight = run(false);
  toy::Warnings of_the_recovery;
  const TrainResult recovered = run(true);
  EXPECT_EQ(recovered.recoveries, 1);
  EXPECT_EQ(recovered.history.size(), 1U);
  EXPECT_EQ(recovered.history, straight.history);
  EXPECT_EQ(recovered.weights_hash, straight.weights_hash);
  EXPECT_EQ(recovered.stop_reason, "enough");
}

}  // namespace
}  // namespace lockstep
