#include "lockstep/train/run_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/early_stopping.h"
#include "lockstep/state/hash.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The train loader of the toy has 50 samples, which are 7 batches.
constexpr std::int64_t kBatches = 7;

std::string refused(const TrainOptions& options) {
  return toy::error_of([&] { toy::train(options); });
}

// The samples of every train batch of a run, in their order, by the first feature.
struct Seen {
  std::vector<std::vector<float>> batches;

  CallbackPtr callback() {
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->batch_start = [this](State& s) {
      if (!s.is_train) return;
      const auto column = s.batch["features"].select(1, 0).contiguous();
      batches.emplace_back(column.data_ptr<float>(), column.data_ptr<float>() + column.numel());
    };
    return hooks;
  }
};

TEST(RunLength, NamesAnOptionThatMakesNoSense) {
  TrainOptions options = toy::options();
  options.num_steps = 10;
  EXPECT_EQ(refused(options),
            "num_steps: expected num_steps or num_epochs, got both: 10 and 3; leave one out");
  options.num_epochs = 1;
  options.num_steps = 0;
  EXPECT_EQ(refused(options), "num_steps: expected 1 or more, got 0");
  options.num_steps.reset();
  options.steps_per_epoch = -1;
  EXPECT_EQ(refused(options), "steps_per_epoch: expected 1 or more, got -1");
  options.steps_per_epoch.reset();
  options.valid_every = 0;
  EXPECT_EQ(refused(options), "valid_every: expected 1 or more epochs, got 0");
  options.valid_every = 1;
  options.limit_batches = {{"train", 0}};
  EXPECT_EQ(refused(options), "limit_batches: train: expected 1 or more batches, got 0");
  options.limit_batches = {{"train", 1.5}};
  EXPECT_THAT(refused(options), HasSubstr("a share above 0 and up to 1.0, got 1.5"));
  options.limit_batches = {{"vaild", 1}};
  EXPECT_THAT(refused(options), testing::AllOf(HasSubstr("limit_batches: there is no loader"),
                                               HasSubstr("did you mean 'valid'")));
  options.limit_batches.clear();
  options.steps_per_epoch = 3;
  options.loaders.set("train_more", options.loaders.at("train"));
  EXPECT_EQ(refused(options),
            "steps_per_epoch: expected one train loader, got 2: train, train_more");
}

TEST(RunLength, IsDescribed) {
  EXPECT_EQ(describe(RunLength{.num_epochs = 8}), "8 epochs");
  EXPECT_EQ(describe(RunLength{.num_epochs = 1, .steps_per_epoch = 30, .goes_on = true}),
            "1 epoch of 30 steps");
  EXPECT_EQ(describe(RunLength{.steps_per_epoch = 30, .num_steps = 1000}), "1,000 steps");
  EXPECT_EQ(describe(RunLength{.steps_per_epoch = 30, .num_steps = 1000, .goes_on = true}),
            "1,000 steps in epochs of 30 steps");
}

TEST(RunLength, LimitedLoadersHaveFewerBatches) {
  TrainOptions options = toy::options();
  options.limit_batches = {{"train", 2}, {"v", 0.5}, {"valid", 0.34}};
  const data::Loaders loaders = limited_loaders(options, 1);
  EXPECT_EQ(loaders.names(), options.loaders.names());
  EXPECT_EQ(loaders.at("train").batches(), 2);
  EXPECT_EQ(loaders.at("valid").batches(), 1) << "the longer name counts: a third of 3";
  std::map<std::string, std::int64_t> batches;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State& s) { ++batches[s.loader]; };
  options.callbacks = {hooks};
  const auto result = toy::train(options);
  EXPECT_EQ(batches["train"], 3 * 2);
  EXPECT_EQ(batches["valid"], 3);
  EXPECT_EQ(result.steps, 3 * 2);
}

TEST(RunLength, ARunOfStepsEndsInsideAnEpoch) {
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.num_steps = kBatches + 3;
  options.scheduler = optim::CosineAnnealingLR{.per = optim::Per::kBatch};
  std::vector<std::int64_t> sizes;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->loader_end = [&](State& s) {
    if (s.is_train) sizes.push_back(s.loader_batches);
  };
  options.callbacks = {hooks};
  const auto result = toy::train(options);
  EXPECT_EQ(result.steps, kBatches + 3);
  EXPECT_EQ(result.epochs, 2);
  EXPECT_THAT(sizes, ElementsAre(kBatches, 3));
  EXPECT_EQ(result.last_metrics.count("valid"), 1u) << "the last epoch is evaluated";
  EXPECT_NEAR(result.last_metrics.at(kEpochKey).at("lr"), 0, 1e-9)
      << "the scheduler spans the steps";

  // The same updates as those of a run that a callback ends there.
  TrainOptions plain = toy::options();
  plain.num_epochs = 2;
  plain.scheduler = optim::CosineAnnealingLR{.t_max = kBatches + 3, .per = optim::Per::kBatch};
  auto ends = std::make_shared<toy::Hooks>();
  ends->step = [](State& s) {
    if (s.is_train && s.progress.epoch == 2 && s.loader_batch == 3) s.request_loader_end();
  };
  plain.callbacks = {ends};
  EXPECT_EQ(toy::train(plain).weights_hash, result.weights_hash);
}

TEST(RunLength, AStepIsAnUpdate) {
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.accumulation_steps = 3;  // 3 updates of an epoch's 7 batches
  options.num_steps = 5;
  std::int64_t batches = 0;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State& s) { batches += s.is_train ? 1 : 0; };
  options.callbacks = {hooks};
  const auto result = toy::train(options);
  EXPECT_EQ(result.steps, 5);
  EXPECT_EQ(result.epochs, 2);
  EXPECT_EQ(batches, kBatches + 2 * 3);
}

TEST(RunLength, AnEpochOfAllBatchesIsTheUsualEpoch) {
  TrainOptions options = toy::options();
  const auto usual = toy::train(options);
  options.model = toy::model();
  options.steps_per_epoch = kBatches;
  const auto same = toy::train(options);
  EXPECT_EQ(same.weights_hash, usual.weights_hash);
  EXPECT_EQ(same.history, usual.history);
}

TEST(RunLength, AnEpochGoesOnWhereTheLastOneStopped) {
  Seen usual;
  TrainOptions options = toy::options();
  options.callbacks = {usual.callback()};
  toy::train(options);  // 3 epochs, 21 batches
  for (const std::int64_t steps : {1, 3, 10, 21}) {
    SCOPED_TRACE(steps);
    Seen seen;
    TrainOptions other = toy::options();
    other.num_epochs = 1;
    other.num_steps = 21;
    other.steps_per_epoch = steps;
    other.callbacks = {seen.callback()};
    const auto result = toy::train(other);
    EXPECT_EQ(result.epochs, (21 + steps - 1) / steps);
    EXPECT_EQ(seen.batches, usual.batches);
  }
}

// Ends the run with an error before this batch.
CallbackPtr power_cut(std::int64_t epoch, const std::string& loader, std::int64_t batch) {
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [=](State& s) {
    if (s.progress.epoch == epoch && s.loader == loader && s.loader_batch == batch) {
      throw Error("power cut");
    }
  };
  return hooks;
}

struct LengthCase {
  const char* name;
  std::function<void(TrainOptions&)> change;
  std::int64_t cut_epoch;
};

void PrintTo(const LengthCase& c, std::ostream* out) {
  *out << c.name;
}

class ResumeOfLength : public testing::TestWithParam<LengthCase> {};

TEST_P(ResumeOfLength, EndsWithTheSameBits) {
  const auto options = [&] {
    TrainOptions options = toy::options();
    options.num_epochs = 1;
    GetParam().change(options);
    return options;
  };
  const auto straight = toy::train(options());
  for (const auto& [loader, batch] : {std::pair("train", 2), std::pair("train", 3),
                                      std::pair("valid", 1), std::pair("valid", 2)}) {
    SCOPED_TRACE(fmt::format("{} {}", loader, batch));
    TemporaryDirectory folder;
    TrainOptions first = options();
    first.logdir = folder / "run";
    first.callbacks.add(power_cut(GetParam().cut_epoch, loader, batch));
    first.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
    EXPECT_THAT(refused(first), testing::EndsWith("power cut"));
    TrainOptions second = options();
    second.model = toy::model(99);
    second.logdir = folder / "run";
    second.resume = "last";
    const auto resumed = toy::train(second);
    EXPECT_EQ(resumed.weights_hash, straight.weights_hash);
    EXPECT_EQ(resumed.history, straight.history);
    EXPECT_EQ(resumed.best_epoch, straight.best_epoch);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Lengths, ResumeOfLength,
    testing::Values(LengthCase{"Steps",
                               [](TrainOptions& o) {
                                 o.num_steps = 2 * kBatches + 4;
                                 o.scheduler = optim::OneCycleLR{.max_lr = 0.05};
                               },
                               2},
                    LengthCase{"LastShortEpoch",
                               [](TrainOptions& o) { o.num_steps = 2 * kBatches + 4; }, 3},
                    LengthCase{"StepsPerEpoch",
                               [](TrainOptions& o) {
                                 o.num_epochs = 5;
                                 o.steps_per_epoch = 5;
                                 o.scheduler = optim::warmup(7, optim::CosineAnnealingLR{});
                               },
                               3},
                    LengthCase{"StepsOfSeveralBatches",
                               [](TrainOptions& o) {
                                 o.num_steps = 8;
                                 o.steps_per_epoch = 3;
                                 o.accumulation_steps = 2;
                               },
                               2},
                    LengthCase{"ValidEvery",
                               [](TrainOptions& o) {
                                 o.num_epochs = 5;
                                 o.valid_every = 2;
                                 o.limit_batches = {{"train", 4}};
                               },
                               4}),
    [](const auto& info) { return info.param.name; });

// The end of the first run inside an epoch ends that epoch.
TEST(RunLength, AResumeMayAskForMoreSteps) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.num_steps = kBatches + 2;
  options.logdir = folder / "run";
  EXPECT_EQ(toy::train(options).steps, kBatches + 2);
  options.num_steps = 3 * kBatches;
  options.resume = "last";
  const auto more = toy::train(options);
  EXPECT_EQ(more.steps, 2 * kBatches - 2);
  EXPECT_EQ(more.history.size(), 4u);
  toy::Warnings warnings;
  EXPECT_EQ(toy::train(options).steps, 0);
  EXPECT_THAT(warnings.texts,
              testing::Contains(HasSubstr("finished 21 steps and num_steps is 21")));
}

TEST(RunLength, AWarningSaysThatStepsAreMissing) {
  const auto options = [](std::function<void(State&)> step) {
    TrainOptions options = toy::options();
    options.num_epochs = 1;
    options.num_steps = 2 * kBatches;
    options.keep_run = true;
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->step = std::move(step);
    options.callbacks = {hooks};
    return options;
  };
  const auto end_first = [](State& s) {
    if (s.is_train && s.progress.epoch == 1 && s.loader_batch == 3) s.request_loader_end();
  };
  toy::Warnings warnings;
  SupervisedRunner runner;
  EXPECT_EQ(runner.train(options(end_first)).steps, 3 + kBatches);
  EXPECT_THAT(warnings.texts, ElementsAre(HasSubstr("ended after 10 of 14 steps")));
  EXPECT_EQ(runner.continue_training({.num_steps = 2 * kBatches}).steps, 4) << "as it says";
  EXPECT_EQ(warnings.texts.size(), 1u) << "now all steps are made";
  toy::train(options([](State& s) { s.request_stop("enough"); }));
  EXPECT_EQ(warnings.texts.size(), 1u) << "a run that is stopped says why itself";
}

// Another number would repeat samples of the epoch, or leave some out.
TEST(RunLength, InsideAnEpochItsStepsMayNotChange) {
  TemporaryDirectory folder;
  const auto options = [&](std::optional<std::int64_t> steps) {
    TrainOptions options = toy::options();
    options.steps_per_epoch = steps;
    options.logdir = folder / "run";
    return options;
  };
  TrainOptions first = options(5);
  first.callbacks = {power_cut(2, "train", 3), CheckpointCallback({.save_every_batches = 1})};
  EXPECT_THAT(refused(first), testing::EndsWith("power cut"));
  for (const auto& [steps, text] :
       {std::pair(std::optional<std::int64_t>(4), "this run has 4 steps_per_epoch"),
        std::pair(std::optional<std::int64_t>(), "this run has no steps_per_epoch")}) {
    TrainOptions second = options(steps);
    second.resume = "last";
    EXPECT_THAT(refused(second), testing::AllOf(HasSubstr("inside an epoch with 5 steps_per_epoch"),
                                                HasSubstr(text), HasSubstr("only between epochs")));
  }
  TrainOptions same = options(5);
  same.resume = "last";
  EXPECT_EQ(refused(same), "");
  TrainOptions between = options(4);
  between.resume = "last";
  between.num_epochs = 4;
  EXPECT_EQ(toy::train(between).steps, 4) << "the run has ended after epoch 3";
}

TEST(RunLength, EpochsWithoutValidationHaveNoScore) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.num_epochs = 5;
  options.valid_every = 2;
  options.logdir = folder / "run";
  options.load_best_on_end = true;
  options.scheduler = optim::ReduceLROnPlateau{.factor = 0.5, .patience = 0};
  options.callbacks = {EarlyStoppingCallback({.patience = 3})};
  auto worse = std::make_shared<toy::Hooks>();
  worse->loader_end = [](State& s) {
    if (s.loader == "valid") s.loader_metrics["loss"] = static_cast<double>(s.progress.epoch);
  };
  options.callbacks.add(worse);
  const auto result = toy::train(options);
  std::vector<std::int64_t> evaluated;
  for (const auto& [epoch, metrics] : result.history) {
    if (metrics.contains("valid")) evaluated.push_back(epoch);
  }
  EXPECT_THAT(evaluated, ElementsAre(2, 4, 5)) << "the last epoch, too";
  EXPECT_EQ(result.best_epoch, 2);
  EXPECT_EQ(result.epochs, 5) << "an epoch without the metric does not count for early stopping";
  EXPECT_TRUE(result.last_checkpoint && std::filesystem::exists(*result.last_checkpoint));
  EXPECT_DOUBLE_EQ(result.history.at(4).at(kEpochKey).at("lr"), 0.01)
      << "the plateau made its first step after epoch 2, and reduced after epoch 4";
  EXPECT_DOUBLE_EQ(result.history.at(5).at(kEpochKey).at("lr"), 0.005);
}

TEST(RunLength, TheFirstAndTheLastLineSayHowLongItIs) {
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.num_steps = 5;
  options.console = true;
  testing::internal::CaptureStdout();
  toy::train(options);
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_THAT(output, testing::StartsWith("5 steps, 1 worker, train: 50 samples, batch 8\n"));
  EXPECT_THAT(output, HasSubstr("Trained 5 steps in "));
}

}  // namespace
}  // namespace lockstep
