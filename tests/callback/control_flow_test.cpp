#include "lockstep/callback/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/checkpoint.h"
#include "lockstep/callback/classification.h"
#include "lockstep/callback/scheduler.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The passes in which a callback is called, as "epoch/loader".
std::vector<std::string> passes(const ControlFlowCallbackOptions& flow,
                                std::int64_t expected_epochs) {
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
  EXPECT_EQ(epochs, expected_epochs) << "ends of epochs";
  return seen;
}

TEST(ControlFlow, LetsThroughWhatIsAllowed) {
  EXPECT_THAT(passes({.loaders = {"valid"}, .every = 2}, 2), ElementsAre("2/valid", "4/valid"));
  EXPECT_THAT(passes({.ignore_loaders = {"train"}, .epochs = {1, 3}}, 2),
              ElementsAre("1/valid", "3/valid"));
  EXPECT_THAT(passes({.ignore_epochs = {1, 2, 3}}, 1), ElementsAre("4/train", "4/valid"));
  EXPECT_THAT(
      passes({.filter = [](std::int64_t epoch,
                           const std::string& loader) { return epoch == 3 && loader == "train"; }},
             4),
      ElementsAre("3/train"));
}

TEST(ControlFlow, EachLoaderMayHaveItsOwnEpochs) {
  EXPECT_THAT(passes({.loader_epochs = {{"train", {1}}, {"valid", {2, 4}}}}, 4),
              ElementsAre("1/train", "2/valid", "4/valid"));
  EXPECT_THAT(passes({.loader_epochs = {{"valid", {3}}}}, 4), ElementsAre("3/valid"));
  EXPECT_THAT(passes({.epochs = {1, 2}, .ignore_loader_epochs = {{"train", {2}}}}, 2),
              ElementsAre("1/train", "1/valid", "2/valid"));
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

TEST(ControlFlow, HasTheTraitsOfTheCallbackInside) {
  const CallbackTraits inside = CheckpointCallback().traits();
  const CallbackTraits wrapped = ControlFlowCallback(CheckpointCallback(), {.every = 2}).traits();
  EXPECT_EQ(wrapped.order, inside.order);
  EXPECT_EQ(wrapped.ranks, inside.ranks);
  EXPECT_EQ(wrapped.uses_gradients, inside.uses_gradients);
  EXPECT_EQ(wrapped.needs_training, inside.needs_training);
  EXPECT_EQ(wrapped.metric_names, inside.metric_names);
}

// The callback that train() would add is in the list already.
TEST(ControlFlow, ABuiltInCallbackInsideIsNotAddedAgain) {
  TrainOptions options = toy::options();
  options.scheduler = optim::StepLR{.step_size = 1, .gamma = 0.5};
  options.callbacks = {ControlFlowCallback(SchedulerCallback(), {.loaders = {"train"}})};
  const auto result = toy::train(options);
  EXPECT_DOUBLE_EQ(result.last_metrics.at("train").at("lr"), 0.01 / 4) << "twice in three epochs";
}

// A callback that acts only at the end of an epoch.
TEST(ControlFlow, ACheckpointIsSavedInTheEpochsThatWereAskedFor) {
  TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.num_epochs = 7;
  options.logdir = folder / "run";
  std::vector<std::int64_t> saved;
  auto watch = std::make_shared<toy::Hooks>();
  watch->checkpoint = [&](State& s) {
    saved.push_back(
        checkpoint::load(*s.last_checkpoint).get<StateDict>("run").get<std::int64_t>("epoch"));
  };
  options.callbacks = {ControlFlowCallback(CheckpointCallback({.save_n_best = 0}), {.every = 3}),
                       watch};
  const auto result = toy::train(options);
  EXPECT_THAT(saved, ElementsAre(3, 6)) << "the epochs in last.pth";
}

TEST(ControlFlow, PassesOnOutputsAndCheckpoints) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder.path();
  auto hooks = std::make_shared<toy::Hooks>();
  std::set<std::int64_t> outputs;
  std::set<std::int64_t> checkpoints;
  hooks->outputs = [&](State& s) { outputs.insert(s.progress.epoch); };
  hooks->checkpoint = [&](State& s) { checkpoints.insert(s.progress.epoch); };
  options.callbacks = {ControlFlowCallback(hooks, {.epochs = {2}})};
  toy::train(options);
  EXPECT_EQ(outputs, std::set<std::int64_t>{2});
  EXPECT_EQ(checkpoints, std::set<std::int64_t>{2});
}

TEST(ControlFlow, ShortFormsDoTheSame) {
  std::vector<std::string> seen;
  auto watch = std::make_shared<toy::Hooks>();
  watch->loader_start = [&](State& s) {
    seen.push_back(fmt::format("{}/{}", s.progress.epoch, s.loader));
  };
  TrainOptions options = toy::options();
  options.callbacks = {every(2, watch)};
  toy::train(options);
  EXPECT_THAT(seen, ElementsAre("2/train", "2/valid"));
  seen.clear();
  options.callbacks = {only_if(
      [](std::int64_t epoch, const std::string& loader) { return epoch > 2 && loader == "valid"; },
      watch)};
  toy::train(options);
  EXPECT_THAT(seen, ElementsAre("3/valid"));
}

TEST(ControlFlow, RefusesWhatSaysNothing) {
  const auto any = std::make_shared<toy::Hooks>();
  EXPECT_THROW(ControlFlowCallback(any, {}), ConfigError);
  EXPECT_THROW(ControlFlowCallback(any, {.every = 0}), ConfigError);
  TrainOptions options = toy::options();
  options.callbacks = {ControlFlowCallback(any, {.loaders = {"vaild"}})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("did you mean 'valid'?"));
  options.callbacks = {ControlFlowCallback(any, {.ignore_loader_epochs = {{"trian", {1}}}})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("did you mean 'train'?"));
}

}  // namespace
}  // namespace lockstep
