#include "lockstep/callback/soft_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/state/hash.h"
#include "tests/callback/averaging_runs.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainOptions following(const SoftUpdateCallbackOptions& soft, int workers = 1) {
  TrainOptions options = toy::two_networks(workers);
  options.callbacks.add(SoftUpdateCallback(soft));
  return options;
}

StateDict teacher_of(const TrainOptions& options) {
  return toy::TwoNetworks().train(options).models["teacher"].state();
}

TEST(SoftUpdate, TheTargetFollowsTheSource) {
  const SoftUpdateCallbackOptions soft{
      .source = "student", .target = "teacher", .tau = 0.1, .every = 2};
  TrainOptions options = following(soft);
  StateDict expected = options.models["teacher"].state();
  options.callbacks.add(on_step([&](State& s) {
    if (!s.is_train || s.progress.update_step % 2 != 0) return;
    for (const auto& [name, value] : s.models["student"].state()) {
      const torch::Tensor source = *value.get_if<torch::Tensor>();
      if (source.is_floating_point()) {
        expected.set(name, expected.get<torch::Tensor>(name) * 0.9 + source * 0.1);
      } else {
        expected.set(name, source);
      }
    }
  }));
  const StateDict teacher = teacher_of(options);
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(
        teacher.get<torch::Tensor>(name).allclose(*value.get_if<torch::Tensor>(), 1e-5, 1e-6))
        << name;
  }
}

// A layer that is used twice, and has two names.
struct UsedTwice : torch::nn::Module {
  UsedTwice() {
    register_module("first", layer);
    register_module("second", layer);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return layer->forward(layer->forward(x)).narrow(1, 0, 3);
  }

  torch::nn::Linear layer{4, 4};
};

TEST(SoftUpdate, TiedWeightsMoveOnce) {
  TrainOptions options = following({.source = "student", .target = "teacher", .tau = 0.5});
  options.models = {{"student", std::make_shared<UsedTwice>()},
                    {"teacher", std::make_shared<UsedTwice>()}};
  const auto weight = [](const Model& model) { return model.parameters()[0].second.detach(); };
  torch::Tensor expected = weight(options.models["teacher"]).clone();
  options.callbacks.add(on_step([&](State& s) {
    if (s.is_train) expected = expected * 0.5 + weight(s.models["student"]) * 0.5;
  }));
  const TrainResult result = toy::TwoNetworks().train(options);
  EXPECT_TRUE(weight(result.models["teacher"]).allclose(expected, 1e-5, 1e-6));
}

TEST(SoftUpdate, CopyAtStartAndATauOfOneMakeCopies) {
  TrainOptions options = following(
      {.source = "student", .target = "teacher", .tau = 1, .every = 1000, .copy_at_start = true});
  const StateDict first = options.models["student"].state();
  EXPECT_EQ(content_hash(teacher_of(options)), content_hash(first)) << "copied once, at the start";
  options = following({.source = "student", .target = "teacher", .tau = 1});
  const TrainResult result = toy::TwoNetworks().train(options);
  EXPECT_EQ(content_hash(result.models["teacher"].state()),
            content_hash(result.models["student"].state()));
}

TEST(SoftUpdate, SameBitsForAnyNumberOfWorkersAndResumedAndRecovered) {
  const SoftUpdateCallbackOptions soft{
      .source = "student", .target = "teacher", .tau = 0.1, .every = 2, .copy_at_start = true};
  const std::string hash = toy::TwoNetworks().train(following(soft)).weights_hash;
  for (const int workers : {2, 3}) {
    EXPECT_EQ(toy::TwoNetworks().train(following(soft, workers)).weights_hash, hash) << workers;
  }
  TemporaryDirectory folder;
  TrainOptions first = following(soft);
  first.callbacks.add(CheckpointCallback({.save_every_batches = 1}));
  first.logdir = folder / "run";
  first.callbacks.add(toy::cut_in("train"));
  EXPECT_THAT(toy::error_of([&] { toy::TwoNetworks().train(first); }), HasSubstr("cut"));
  TrainOptions second = following(soft, 2);
  second.logdir = folder / "run";
  second.resume = "last";
  EXPECT_EQ(toy::TwoNetworks().train(second).weights_hash, hash) << "resumed";
  toy::Warnings of_the_recovery;
  TrainOptions recovered = following(soft, 2);
  recovered.max_restarts = 1;
  recovered.callbacks.add(toy::cut_in("train"));
  EXPECT_EQ(toy::TwoNetworks().train(recovered).weights_hash, hash) << "recovered";
}

TEST(SoftUpdate, WhatCannotWorkIsRefused) {
  const auto error = [](const SoftUpdateCallbackOptions& soft) {
    return toy::error_of([&] { toy::TwoNetworks().train(following(soft)); });
  };
  EXPECT_THAT(error({.source = "student", .target = "student"}), HasSubstr("got 'student' twice"));
  EXPECT_THAT(error({.source = "student", .target = "teacher", .tau = 0}),
              HasSubstr("tau: expected a number above 0"));
  EXPECT_THAT(error({.source = "studen", .target = "teacher"}),
              AllOf(HasSubstr("source: there is no network 'studen'"), HasSubstr("'student'")));
  EXPECT_THAT(error({.source = "teacher", .target = "student"}),
              HasSubstr("an optimizer trains 'student'"));
  EXPECT_THAT(toy::error_of([] {
                TrainOptions other = following({.source = "student", .target = "teacher"});
                other.models.set("teacher", torch::nn::Sequential(torch::nn::Linear(4, 3)));
                toy::TwoNetworks().train(other);
              }),
              HasSubstr("two networks with the same weights"));
}

}  // namespace
}  // namespace lockstep
