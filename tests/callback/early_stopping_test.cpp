#include "lockstep/callback/early_stopping.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "tests/callback/averaging_runs.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// The number of epochs that run with the given validation scores.
std::int64_t epochs_run(const std::vector<double>& scores, EarlyStoppingCallbackOptions early) {
  auto script = std::make_shared<toy::Hooks>();
  script->loader_end = [&](State& s) {
    if (s.loader == "valid") s.loader_metrics["loss"] = scores[s.progress.epoch - 1];
  };
  TrainOptions options = toy::options();
  options.num_epochs = static_cast<std::int64_t>(scores.size());
  options.callbacks = {script, EarlyStoppingCallback(early)};
  return static_cast<std::int64_t>(toy::train(options).history.size());
}

TEST(EarlyStopping, StopsAfterPatienceEpochsInARow) {
  EXPECT_EQ(epochs_run({5, 4, 4, 4, 4, 4}, {.patience = 2}), 4);
  EXPECT_EQ(epochs_run({5, 6, 4, 6, 3, 6}, {.patience = 2}), 6) << "never two in a row";
}

TEST(EarlyStopping, CountsOnlyWhatIsBetterByMinDelta) {
  EXPECT_EQ(epochs_run({5, 4.95, 4.9, 4.85, 1}, {.patience = 2, .min_delta = 0.2}), 3);
  EXPECT_EQ(epochs_run({5, 4.75, 4.5, 4.25, 4}, {.patience = 1, .min_delta = 0.25}), 5);
}

TEST(EarlyStopping, MaximizesWhenAskedTo) {
  EXPECT_EQ(epochs_run({1, 2, 3, 4, 5}, {.patience = 1, .minimize = false}), 5);
  EXPECT_EQ(epochs_run({5, 4, 3, 2, 1}, {.patience = 2, .minimize = false}), 3);
}

TEST(EarlyStopping, NotANumberIsNeverBetter) {
  EXPECT_EQ(epochs_run({std::nan(""), std::nan(""), 1, 1}, {.patience = 2}), 2);
  EXPECT_EQ(epochs_run({5, std::nan(""), 4, 3}, {.patience = 2}), 4);
}

TEST(EarlyStopping, AResumedRunRemembersItsMisses) {
  EarlyStoppingCallback first(
      {.patience = 3, .metric = MetricKey{"valid", "loss"}, .minimize = true});
  State state;
  state.loaders = toy::loaders();
  const auto epoch = [&](EarlyStoppingCallback& callback, double score) {
    state.epoch_metrics["valid"]["loss"] = score;
    callback.on_epoch_end(state);
  };
  state.progress.epoch = 1;
  first.on_run_start(state);
  for (const double score : {1.0, 2.0, 2.0}) epoch(first, score);
  EarlyStoppingCallback second(
      {.patience = 3, .metric = MetricKey{"valid", "loss"}, .minimize = true});
  second.load_state(first.state());
  second.on_run_start(state);
  EXPECT_FALSE(state.stop_reason);
  epoch(second, 2.0);
  EXPECT_TRUE(state.stop_reason);
}

TEST(EarlyStopping, SaysWhatIsWrongWithIt) {
  EXPECT_THAT(toy::error_of([] { EarlyStoppingCallback({.patience = 0}); }), HasSubstr("patience"));
  EXPECT_THAT(toy::error_of([] { EarlyStoppingCallback({.min_delta = -1}); }),
              HasSubstr("min_delta"));
  TrainOptions options = toy::options();
  options.callbacks = {EarlyStoppingCallback({.metric = MetricKey{"vald", "loss"}})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("'valid'"));
  options.valid_loader.reset();
  options.callbacks = {EarlyStoppingCallback()};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("valid_loader"));
}

// The callback's own metric decides what is better, not the run's valid_metric, which is a loss
// here.
TEST(EarlyStopping, GoesByWhatItsOwnMetricSays) {
  auto script = std::make_shared<toy::Hooks>();
  script->loader_end = [](State& s) {
    s.loader_metrics["accuracy01"] = static_cast<double>(s.progress.epoch);
  };
  TrainOptions options = toy::options();
  options.num_epochs = 4;
  options.callbacks = {
      AccuracyCallback({.num_classes = 3}), script,
      EarlyStoppingCallback({.patience = 1, .metric = MetricKey{"valid", "accuracy01"}})};
  EXPECT_EQ(toy::train(options).history.size(), 4U) << "it always improves";
  options.callbacks = {
      AccuracyCallback({.num_classes = 3}),
      EarlyStoppingCallback({.patience = 1, .metric = MetricKey{"valid", "accuracy01/std"}})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("its minimize"));
}

// A run whose batches have the given losses, in all shards.
TrainOptions by_batch(const std::vector<double>& losses, std::int64_t patience) {
  auto script = std::make_shared<toy::Hooks>();
  script->batch_end = [losses](State& s) {
    const auto batch = static_cast<std::size_t>(s.progress.batch_step - 1);
    if (s.is_train) s.batch_metrics["loss"] = losses.at(std::min(batch, losses.size() - 1));
  };
  TrainOptions options = toy::averaged_options([&] {
    return std::make_shared<EarlyStoppingCallback>(
        EarlyStoppingCallbackOptions{.patience = patience,
                                     .metric = MetricKey{"train", "loss"},
                                     .minimize = true,
                                     .per = optim::Per::kBatch});
  });
  Callbacks ordered = {script};
  for (const auto& callback : options.callbacks) ordered.add(callback);
  options.callbacks = ordered;
  return options;
}

TEST(EarlyStopping, StopsAfterPatienceBatchesInARow) {
  TrainResult result = toy::train(by_batch({5, 4, 4, 4, 3}, 2));
  EXPECT_EQ(result.steps, 4);
  EXPECT_EQ(result.epochs, 2) << "of three batches each";
  EXPECT_TRUE(result.last_metrics.contains("valid")) << "the epoch is finished";
  EXPECT_THAT(*result.stop_reason, HasSubstr("for 2 batches"));
  result = toy::train(by_batch({5, 4, 4, 3, 3, 2, 2, 1, 1}, 2));
  EXPECT_EQ(result.steps, 9) << "never two in a row";
}

TEST(EarlyStopping, PerBatchIsTheSameForAnyNumberOfWorkersAndResumedAndRecovered) {
  toy::expect_same_average([] {
    return std::make_shared<EarlyStoppingCallback>(
        EarlyStoppingCallbackOptions{.patience = 7,
                                     .metric = MetricKey{"train", "loss"},
                                     .minimize = false,
                                     .per = optim::Per::kBatch});
  });
}

TEST(EarlyStopping, PerBatchNeedsAMetricOfBatches) {
  TrainOptions options = toy::options();
  options.callbacks.add(AccuracyCallback({.num_classes = 3}));
  options.callbacks.add(EarlyStoppingCallback(
      {.metric = MetricKey{"train", "accuracy01"}, .minimize = true, .per = optim::Per::kBatch}));
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("no batch of loader 'train' has a metric 'accuracy01'"));
}

}  // namespace
}  // namespace lockstep
