#include "lockstep/train/options.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Counts batches: a wrong option must be refused before the first one.
std::string refusal(const std::function<void(TrainOptions&)>& spoil) {
  TrainOptions options = toy::options();
  auto hooks = std::make_shared<toy::Hooks>();
  int batches = 0;
  hooks->batch_start = [&](State&) { ++batches; };
  options.callbacks.add(hooks);
  spoil(options);
  const std::string text = toy::error_of([&] { toy::train(options); });
  EXPECT_EQ(batches, 0) << "trained before it complained: " << text;
  return text;
}

TEST(TrainOptions, WhatIsMissingIsNamed) {
  EXPECT_THAT(refusal([](auto& o) { o.model = {}; }), HasSubstr("model: expected one"));
  EXPECT_THAT(refusal([](auto& o) { o.optimizer = {}; }), HasSubstr("optimizer: expected one"));
  EXPECT_THAT(refusal([](auto& o) { o.loaders = {}; }), HasSubstr("loaders: expected"));
}

TEST(TrainOptions, NumbersWithoutMeaningAreRefused) {
  EXPECT_THAT(refusal([](auto& o) { o.num_epochs = 0; }), HasSubstr("num_epochs"));
  EXPECT_THAT(refusal([](auto& o) {
                o.accumulation_steps = 0;
                o.scheduler = optim::OneCycleLR{.max_lr = 1};
              }),
              HasSubstr("accumulation_steps"));
  EXPECT_THAT(refusal([](auto& o) { o.clip_grad_norm = 0.0; }), HasSubstr("clip_grad_norm"));
}

TEST(TrainOptions, AnUnknownValidLoaderGetsTheNearestName) {
  EXPECT_THAT(refusal([](auto& o) { o.valid_loader = "vald"; }),
              AllOf(HasSubstr("valid_loader"), HasSubstr("'vald'"), HasSubstr("'valid'")));
}

TEST(TrainOptions, AMetricThatIsNotComputedIsRefusedBeforeTheFirstBatch) {
  EXPECT_THAT(refusal([](auto& o) { o.valid_metric = "acc"; }), HasSubstr("'acc'"));
  EXPECT_THAT(refusal([](auto& o) {
                o.callbacks.add(AccuracyCallback({.num_classes = 3}));
                o.valid_metric = "acuracy01";
              }),
              AllOf(HasSubstr("'acuracy01'"), HasSubstr("'accuracy01'")));
}

TEST(TrainOptions, AMetricWithoutItsLoaderIsRefused) {
  EXPECT_THAT(refusal([](auto& o) {
                o.valid_loader.reset();
                o.valid_metric = "loss";
              }),
              HasSubstr("set valid_loader"));
}

TEST(TrainOptions, LoadersAreCheckedByNameAndContent) {
  EXPECT_THAT(refusal([](auto& o) { o.loaders.set("tain", {toy::points(4)}); }),
              HasSubstr("'tain'"));
  EXPECT_THAT(refusal([](auto& o) { o.loaders.set("valid", {toy::points(0)}); }),
              AllOf(HasSubstr("'valid'"), HasSubstr("empty")));
  EXPECT_THAT(refusal([](auto& o) {
                o.loaders.set("train", {toy::points(5), {.batch_size = 8, .drop_last = true}});
              }),
              AllOf(HasSubstr("'train'"), HasSubstr("drop_last")));
  EXPECT_THAT(refusal([](auto& o) {
                o.loaders = {{"valid", {toy::points(5)}}};
              }),
              HasSubstr("'train'"));
}

TEST(TrainOptions, AWrongKeyIsNamedAtTheFirstBatch) {
  TrainOptions options = toy::options();
  SupervisedRunner runner({.input_key = "feature"});
  EXPECT_THAT(toy::error_of([&] { runner.train(options); }),
              AllOf(HasSubstr("'feature'"), HasSubstr("'features'")));
  options.callbacks.add(AccuracyCallback({.input_key = "logit", .num_classes = 3}));
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              AllOf(HasSubstr("'logit'"), HasSubstr("'logits'")));
}

TEST(TrainOptions, WithoutACriterionThereIsNothingToTrainOn) {
  TrainOptions options = toy::options();
  options.criterion = {};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("criterion"));
}

TEST(TrainOptions, ANotFiniteLossEndsTheRunWhereAskedTo) {
  TrainOptions options = toy::options();
  options.criterion = [](const torch::Tensor& x, const torch::Tensor&) {
    return x.sum() * std::numeric_limits<double>::quiet_NaN();
  };
  options.terminate_on_nan = true;
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              AllOf(HasSubstr("'train'"), HasSubstr("epoch 1, batch 1"), HasSubstr("nan")));
  // Only in validation: the loss is finite in training and not outside of it.
  TrainOptions only_valid = toy::options();
  only_valid.criterion = [](const torch::Tensor& x, const torch::Tensor& y) {
    return torch::cross_entropy_loss(x, y) / (x.requires_grad() ? 1.0 : 0.0);
  };
  only_valid.terminate_on_nan = true;
  EXPECT_THAT(toy::error_of([&] { toy::train(only_valid); }), HasSubstr("'valid'"));
  options.terminate_on_nan = false;
  EXPECT_EQ(toy::error_of([&] { toy::train(options); }), "");
}

TEST(TrainOptions, TheFirstLossThatIsNotFiniteIsWarnedOfOnce) {
  TrainOptions options = toy::options();
  options.criterion = [](const torch::Tensor& x, const torch::Tensor& y) {
    return torch::cross_entropy_loss(x, y) / (x.requires_grad() ? 1.0 : 0.0);
  };
  const toy::Warnings warnings;
  toy::train(options);
  ASSERT_EQ(warnings.texts.size(), 1u);
  EXPECT_THAT(warnings.texts[0], AllOf(HasSubstr("loader 'valid', epoch 1, batch 1: 'loss' is inf"),
                                       HasSubstr("terminate_on_nan")));
}

}  // namespace
}  // namespace lockstep
