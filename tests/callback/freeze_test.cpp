#include "lockstep/callback/freeze.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file.h"
#include "lockstep/callback/lambda.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

torch::Tensor parameter_of(const Model& model, const std::string& wanted) {
  for (const auto& [name, parameter] : model.parameters()) {
    if (name == wanted) return parameter;
  }
  throw Error("there is no parameter " + wanted);
}

TrainOptions frozen_by(std::vector<FreezeCallbackOptions> freezes) {
  TrainOptions options = toy::options();
  options.num_epochs = 4;
  for (auto& freeze : freezes) options.callbacks.add(FreezeCallback(std::move(freeze)));
  return options;
}

// The epochs in which the parameter changes.
std::vector<std::int64_t> epochs_that_change(const std::string& name, TrainOptions options) {
  std::vector<std::int64_t> changed;
  torch::Tensor before = parameter_of(options.model, name).detach().clone();
  options.callbacks.add(on_epoch_end([&](State& s) {
    const torch::Tensor now = parameter_of(s.model, name).detach().clone();
    if (!now.equal(before)) changed.push_back(s.progress.epoch);
    before = now;
  }));
  toy::train(options);
  return changed;
}

TEST(Freeze, TheFirstEpochs) {
  const auto options = [] { return frozen_by({{.names = {"0.*"}, .epochs = 2}}); };
  EXPECT_THAT(epochs_that_change("0.weight", options()), ElementsAre(3, 4));
  EXPECT_THAT(epochs_that_change("0.bias", options()), ElementsAre(3, 4));
  EXPECT_THAT(epochs_that_change("4.weight", options()), ElementsAre(1, 2, 3, 4));
}

TEST(Freeze, FromAnEpochOn) {
  EXPECT_THAT(epochs_that_change("0.weight", frozen_by({{.names = {"0.*"}, .from_epoch = 3}})),
              ElementsAre(1, 2));
  EXPECT_THAT(
      epochs_that_change("0.weight", frozen_by({{.names = {"0.*"}, .from_epoch = 2, .epochs = 1}})),
      ElementsAre(1, 3, 4));
}

TEST(Freeze, SeveralCallbacksAddUp) {
  const FreezeCallbackOptions one = {.names = {"0.*"}, .epochs = 1};
  const FreezeCallbackOptions three = {.names = {"0.weight", "1.*"}, .epochs = 3};
  EXPECT_THAT(epochs_that_change("0.weight", frozen_by({one, three})), ElementsAre(4));
  EXPECT_THAT(epochs_that_change("0.weight", frozen_by({three, one})), ElementsAre(4));
}

// In epoch 2 the parameter is frozen by one of them, and the other one needs it frozen in epoch 3.
TEST(Freeze, TheOrderOfCallbacksDoesNotMatter) {
  const FreezeCallbackOptions early = {.names = {"0.*"}, .epochs = 2};
  const FreezeCallbackOptions late = {.names = {"0.*"}, .from_epoch = 2, .epochs = 2};
  EXPECT_THAT(epochs_that_change("0.weight", frozen_by({early, late})), ElementsAre(4));
  EXPECT_THAT(epochs_that_change("0.weight", frozen_by({late, early})), ElementsAre(4));
  const TemporaryDirectory folder;
  TrainOptions begin = frozen_by({late, early});
  begin.num_epochs = 2;
  begin.logdir = folder / "run";
  toy::train(begin);
  TrainOptions rest = frozen_by({late, early});
  rest.logdir = folder / "run";
  rest.resume = "last";
  EXPECT_EQ(toy::train(rest).weights_hash, toy::train(frozen_by({late, early})).weights_hash);
}

TEST(Freeze, ParametersAreAfterTheRunAsBefore) {
  TrainOptions options = frozen_by({{.names = {"0.*", "1.*"}}});
  parameter_of(options.model, "1.bias").set_requires_grad(false);
  toy::train(options);
  EXPECT_TRUE(parameter_of(options.model, "0.weight").requires_grad());
  EXPECT_FALSE(parameter_of(options.model, "1.bias").requires_grad()) << "was frozen before";
}

// The epochs in which batch norm's running mean changes.
std::vector<std::int64_t> epochs_of_new_means(TrainOptions options) {
  std::vector<std::int64_t> changed;
  const auto mean = [](const Model& model) { return model.buffers().front().second.clone(); };
  torch::Tensor before = mean(options.model);
  options.callbacks.add(on_epoch_end([&](State& s) {
    if (!mean(s.model).equal(before)) changed.push_back(s.progress.epoch);
    before = mean(s.model);
  }));
  toy::train(options);
  return changed;
}

TEST(Freeze, FrozenModulesAreInEvaluationModeIfTheyShould) {
  EXPECT_THAT(epochs_of_new_means(frozen_by({{.names = {"1.*"}, .epochs = 2}})),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(epochs_of_new_means(frozen_by({{.names = {"1.*"}, .epochs = 2, .eval = true}})),
              ElementsAre(3, 4));
  EXPECT_THAT(epochs_of_new_means(frozen_by({{.names = {"1.bias"}, .eval = true}})),
              ElementsAre(1, 2, 3, 4))
      << "its weight is trained";
}

struct BodyAndHead : torch::nn::Module {
  BodyAndHead() {
    register_module("body", body);
    register_module("head", head);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head->forward(body->forward(x)); }

  torch::nn::Sequential body{torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8),
                             torch::nn::Dropout(0.5)};
  torch::nn::Sequential head{torch::nn::Linear(8, 3), torch::nn::Dropout(0.5)};
};

// Dropout has no parameters; it belongs to the module around it. The trained part keeps its mode.
TEST(Freeze, EverythingInsideAFrozenModuleIsInEvaluationMode) {
  const auto net = std::make_shared<BodyAndHead>();
  auto &body = net->body, &head = net->head;
  TrainOptions options = frozen_by({{.names = {"body.*"}, .epochs = 1, .eval = true}});
  options.model = net;
  std::vector<bool> modes;
  options.callbacks.add(on_batch_start([&](State& s) {
    const bool is_new = s.is_train && s.progress.epoch * 3 > std::ssize(modes);
    if (!is_new) return;
    modes.insert(modes.end(), {body->is_training(), body[2]->is_training(), head->is_training()});
  }));
  options.num_epochs = 2;
  toy::train(options);
  EXPECT_THAT(modes, ElementsAre(false, false, true, true, true, true));
}

// The settings of an optimizer freeze for the whole run.
TEST(Freeze, BySettingsOfTheOptimizer) {
  TrainOptions options = frozen_by({});
  options.optimizer = {optim::Adam{.lr = 0.01}, {{.names = "0.*", .frozen = true}}};
  EXPECT_THAT(epochs_that_change("0.weight", options), ElementsAre());
  EXPECT_THAT(epochs_that_change("4.weight", options), ElementsAre(1, 2, 3, 4));
  EXPECT_TRUE(parameter_of(options.model, "0.weight").requires_grad());
}

TEST(Freeze, AResumedRunAndSeveralWorkersGiveTheSameBits) {
  const auto options = [] {
    TrainOptions made = frozen_by({{.names = {"0.*", "1.*"}, .epochs = 2, .eval = true}});
    made.ddp = true;
    made.workers = 1;
    made.shards = 2;
    return made;
  };
  const std::string hash = toy::train(options()).weights_hash;
  TrainOptions two = options();
  two.workers = 2;
  EXPECT_EQ(toy::train(two).weights_hash, hash);
  for (const std::int64_t first : {1, 3}) {
    const TemporaryDirectory folder;
    TrainOptions begin = options();
    begin.num_epochs = first;
    begin.logdir = folder / "run";
    toy::train(begin);
    TrainOptions rest = options();
    rest.logdir = folder / "run";
    rest.resume = "last";
    EXPECT_EQ(toy::train(rest).weights_hash, hash) << "resumed after epoch " << first;
  }
}

TEST(Freeze, WhatCannotWorkIsRefused) {
  const auto error = [](const FreezeCallbackOptions& freeze) {
    return toy::error_of([&] { toy::train(frozen_by({freeze})); });
  };
  EXPECT_THAT(error({}), HasSubstr("names: expected a parameter or a pattern, got none"));
  EXPECT_THAT(error({.names = {"*"}, .epochs = 1}), HasSubstr("* would freeze all parameters"));
  EXPECT_THAT(error({.names = {"0.weights"}}),
              HasSubstr("'0.weights' matches no parameter; did you mean '0.weight'?"));
  EXPECT_THAT(error({.names = {"0.*"}, .epochs = 0}), HasSubstr("epochs: expected 1 or more"));
  EXPECT_THAT(error({.names = {"0.*"}, .from_epoch = 0}),
              HasSubstr("from_epoch: expected 1 or more"));
}

}  // namespace
}  // namespace lockstep
