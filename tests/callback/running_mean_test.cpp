#include "lockstep/callback/running_mean.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(RunningMeanCallback, IsTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history = toy::expect_same_history(
      {.train = toy::points(61), .valid = toy::points(47, 2), .callbacks = [] {
         return Callbacks{RunningMeanCallback({.window = 2, .train_only = false})};
       }});
  for (const char* const loader : {"train", "valid"}) {
    EXPECT_NE(history.at(2).at(loader).at("running_loss"), history.at(2).at(loader).at("loss"));
  }
}

TEST(RunningMeanCallback, IsTheMeanOfTheLastBatches) {
  std::vector<double> losses, shown;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [&](State& s) {
    if (!s.is_train) return;
    losses.push_back(s.batch_metrics.at("loss"));
    shown.push_back(s.running_metrics().at("running_loss"));
  };
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.loaders = {{"train", {toy::points(40), {.batch_size = 8}}},
                     {"valid", {toy::points(30), {.batch_size = 10}}}};
  options.callbacks = {RunningMeanCallback({.window = 3}), hooks};
  const auto metrics = toy::train(options).last_metrics;
  ASSERT_EQ(losses.size(), 5u);
  EXPECT_DOUBLE_EQ(shown[0], losses[0]);
  EXPECT_DOUBLE_EQ(shown[4], (losses[2] + losses[3] + losses[4]) / 3);
  EXPECT_EQ(metrics.at("train").at("running_loss"), shown[4]);
  EXPECT_EQ(metrics.at("valid").count("running_loss"), 0u);  // train_only
}

TEST(RunningMeanCallback, NamesWhatIsNotThere) {
  const auto error = [](const RunningMeanCallbackOptions& callback) {
    return toy::error_of([&] {
      TrainOptions options = toy::options();
      options.callbacks = {RunningMeanCallback(callback)};
      toy::train(options);
    });
  };
  EXPECT_THAT(error({.metrics = {"los"}}),
              HasSubstr("there is no metric 'los'; did you mean 'loss'"));
  EXPECT_THAT(error({.metrics = {"lr"}}), HasSubstr("no batch of 'train' has a number 'lr'"));
  EXPECT_THAT(error({.metrics = {}}), HasSubstr("metrics: expected one or more"));
  EXPECT_THAT(error({.metrics = {"loss", "loss"}}), HasSubstr("'loss' twice"));
  EXPECT_THAT(error({.window = 0}), HasSubstr("window: expected 1 batch or more"));
  EXPECT_EQ(RunningMeanCallback().better("running_loss"), Better::kSmaller);
}

}  // namespace
}  // namespace lockstep
