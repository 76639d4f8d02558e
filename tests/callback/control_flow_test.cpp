#include "lockstep/callback/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "lockstep/callback/scheduler.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The passes that reach a callback, as "epoch/loader".
std::vector<std::string> passes(const ControlFlowCallbackOptions& flow) {
  std::vector<std::string> seen;
  auto watch = std::make_shared<toy::Hooks>();
  std::int64_t batches = 0, ends = 0, epochs = 0;
  watch->loader_start = [&](State& s) {
    seen.push_back(fmt::format("{}/{}", s.progress.epoch, s.loader));
  };
  watch->batch_end = [&](State&) { ++batches; };
  watch->loader_end = [&](State&) { ++ends; };
  watch->epoch_end = [&](State&) { ++epochs; };
  TrainOptions options = toy::options();
  options.num_epochs = 4;
  options.callbacks = {ControlFlowCallback(watch, flow)};
  toy::train(options);
  EXPECT_EQ(ends, static_cast<std::int64_t>(seen.size()));
  EXPECT_EQ(batches > 0, !seen.empty());
  EXPECT_EQ(epochs, 4) << "epochs end for all";
  return seen;
}

TEST(ControlFlow, LetsThroughWhatIsAllowed) {
  EXPECT_THAT(passes({.loaders = {"valid"}, .every = 2}), ElementsAre("2/valid", "4/valid"));
  EXPECT_THAT(passes({.ignore_loaders = {"train"}, .epochs = {1, 3}}),
              ElementsAre("1/valid", "3/valid"));
  EXPECT_THAT(passes({.ignore_epochs = {1, 2, 3}}), ElementsAre("4/train", "4/valid"));
  EXPECT_THAT(
      passes({.filter = [](std::int64_t epoch,
                           const std::string& loader) { return epoch == 3 && loader == "train"; }}),
      ElementsAre("3/train"));
}

TEST(ControlFlow, AMetricIsThereWhereItIsComputedOnWorkersToo) {
  TrainOptions options = toy::options();
  options.callbacks = {
      ControlFlowCallback(AccuracyCallback({.num_classes = 3}), {.loaders = {"valid"}})};
  options.ddp = true;
  options.workers = 2;
  const auto result = toy::train(options);
  EXPECT_TRUE(result.last_metrics.at("valid").contains("accuracy01"));
  EXPECT_FALSE(result.last_metrics.at("train").contains("accuracy01"));
}

// The one that train() would add is there already.
TEST(ControlFlow, ABuiltInCallbackInsideIsNotAddedAgain) {
  TrainOptions options = toy::options();
  options.scheduler = optim::StepLR{.step_size = 1, .gamma = 0.5};
  options.callbacks = {ControlFlowCallback(SchedulerCallback(), {.loaders = {"train"}})};
  const auto result = toy::train(options);
  EXPECT_DOUBLE_EQ(result.last_metrics.at("train").at("lr"), 0.01 / 4) << "twice in three epochs";
}

TEST(ControlFlow, RefusesWhatSaysNothing) {
  const auto any = std::make_shared<toy::Hooks>();
  EXPECT_THROW(ControlFlowCallback(any, {}), ConfigError);
  EXPECT_THROW(ControlFlowCallback(any, {.every = 0}), ConfigError);
  TrainOptions options = toy::options();
  options.callbacks = {ControlFlowCallback(any, {.loaders = {"vaild"}})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("did you mean 'valid'?"));
}

}  // namespace
}  // namespace lockstep
