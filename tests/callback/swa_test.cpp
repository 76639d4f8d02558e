#include "lockstep/callback/swa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/freeze.h"
#include "lockstep/callback/lambda.h"
#include "tests/callback/averaging_runs.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

// A run without dropout, so that the statistics of batch norm can be computed by hand.
TrainOptions without_dropout(const SwaCallbackOptions& swa) {
  namespace nn = torch::nn;
  torch::manual_seed(7);
  TrainOptions options = toy::options();
  options.model =
      nn::Sequential(nn::Linear(4, 16), nn::BatchNorm1d(16), nn::ReLU(), nn::Linear(16, 3));
  options.num_epochs = 4;
  options.callbacks.add(SwaCallback(swa));
  return options;
}

TEST(Swa, TheRunEndsWithTheMeanOfTheLastEpochs) {
  TrainOptions options = without_dropout({.start_epoch = 3, .remake_batch_norm = false});
  std::vector<StateDict> ends;
  options.callbacks.add(on_epoch_end([&](State& s) { ends.push_back(s.model.state()); }));
  const StateDict mean = toy::train(options).model.state();
  ASSERT_EQ(ends.size(), 4U);
  for (const auto& [name, value] : mean) {
    const torch::Tensor third = ends[2].get<torch::Tensor>(name);
    const torch::Tensor fourth = ends[3].get<torch::Tensor>(name);
    const torch::Tensor expected = third.is_floating_point() ? (third + fourth) / 2 : fourth;
    EXPECT_TRUE(value.get_if<torch::Tensor>()->allclose(expected, 1e-5, 1e-7)) << name;
  }
}

TEST(Swa, TheDefaultStartIsAfterThreeQuarters) {
  const auto hash_of = [](const SwaCallbackOptions& swa) {
    return toy::train(without_dropout(swa)).weights_hash;
  };
  EXPECT_EQ(hash_of({}), hash_of({.start_epoch = 4}));
  EXPECT_NE(hash_of({}), hash_of({.start_epoch = 3}));
}

TEST(Swa, EveryStepsAveragesInsideEpochs) {
  TrainOptions options =
      without_dropout({.start_epoch = 2, .every = 5, .remake_batch_norm = false});
  std::vector<torch::Tensor> seen;
  options.callbacks.add(on_step([&](State& s) {
    const bool is_due = s.is_train && s.progress.epoch >= 2 && s.progress.update_step % 5 == 0;
    if (is_due) seen.push_back(s.model.state().get<torch::Tensor>("0.weight"));
  }));
  const StateDict mean = toy::train(options).model.state();
  ASSERT_GT(seen.size(), 2U);
  EXPECT_TRUE(mean.get<torch::Tensor>("0.weight").allclose(torch::stack(seen).mean(0), 1e-5, 1e-6));
}

// As torch.optim.swa_utils.update_bn: the mean over all batches of the mean and the variance of
// each batch, in training mode.
void expect_new_statistics(TrainOptions options) {
  std::vector<torch::Tensor> batches;
  options.callbacks.add(on_batch_start([&](State& s) {
    if (s.is_train && s.progress.epoch == 4) batches.push_back(s.batch["features"].clone());
  }));
  const StateDict weights = toy::train(options).model.state();
  torch::Tensor mean = torch::zeros({16});
  torch::Tensor variance = torch::zeros({16});
  for (const auto& features : batches) {
    const torch::Tensor hidden = torch::nn::functional::linear(
        features, weights.get<torch::Tensor>("0.weight"), weights.get<torch::Tensor>("0.bias"));
    mean += hidden.mean(0) / static_cast<double>(batches.size());
    variance += hidden.var(0) / static_cast<double>(batches.size());
  }
  EXPECT_TRUE(weights.get<torch::Tensor>("1.running_mean").allclose(mean, 1e-5, 1e-6));
  EXPECT_TRUE(weights.get<torch::Tensor>("1.running_var").allclose(variance, 1e-5, 1e-6));
}

TEST(Swa, StatisticsOfBatchNormAreMadeAnew) {
  expect_new_statistics(without_dropout({.start_epoch = 3}));
}

TEST(Swa, AFrozenBatchNormKeepsItsStatistics) {
  TrainOptions options = without_dropout({.start_epoch = 2});
  options.callbacks.add(FreezeCallback({.names = {"1.*"}, .eval = true}));
  const StateDict before = options.model.state();
  const StateDict after = toy::train(options).model.state();
  for (const char* const name : {"1.running_mean", "1.running_var"}) {
    EXPECT_TRUE(after.get<torch::Tensor>(name).equal(before.get<torch::Tensor>(name))) << name;
  }
}

// The first passes find no batch norm in training mode.
TEST(Swa, ABatchNormThatIsFrozenAtFirstHasNewStatisticsLater) {
  TrainOptions options = without_dropout({.start_epoch = 2});
  options.callbacks.add(FreezeCallback({.names = {"1.*"}, .epochs = 3, .eval = true}));
  expect_new_statistics(std::move(options));
}

TEST(Swa, TheLearningRateIsAnnealedAndThenConstant) {
  const auto lrs_of = [](const SwaCallbackOptions& swa, const optim::SchedulerSpec& scheduler) {
    TrainOptions options = without_dropout(swa);
    options.num_epochs = 5;
    options.scheduler = scheduler;
    std::vector<double> lrs;  // of the last batch of each epoch
    options.callbacks.add(on_batch_start([&](State& s) {
      if (!s.is_train) return;
      lrs.resize(static_cast<std::size_t>(s.progress.epoch));
      lrs.back() = s.optimizer->lr();
    }));
    toy::train(options);
    return lrs;
  };
  EXPECT_THAT(lrs_of({.start_epoch = 3, .lr = 0.05}, {}),
              ElementsAre(0.01, 0.01, 0.05, 0.05, 0.05));
  EXPECT_THAT(lrs_of({.start_epoch = 2, .lr = 0.05, .anneal_epochs = 2}, {}),
              ElementsAre(0.01, DoubleNear(0.03, 1e-12), 0.05, 0.05, 0.05));
  EXPECT_THAT(
      lrs_of({.start_epoch = 3, .lr = 0.05, .anneal_epochs = 4, .anneal = optim::Anneal::kLinear},
             {}),
      ElementsAre(0.01, 0.01, DoubleNear(0.02, 1e-12), DoubleNear(0.03, 1e-12),
                  DoubleNear(0.04, 1e-12)));
  // It replaces the learning rate of a scheduler, also of one that steps after every batch.
  EXPECT_THAT(lrs_of({.start_epoch = 3, .lr = 0.05},
                     optim::ExponentialLR{.gamma = 0.5, .per = optim::Per::kBatch})
                  .back(),
              0.05);
}

// Three quarters of 8 epochs end after the 6th, but averaging began in the 4th.
TEST(Swa, AResumedRunWithMoreEpochsKeepsTheStart) {
  const SwaCallbackOptions swa{.lr = 0.05, .anneal_epochs = 4, .anneal = optim::Anneal::kLinear};
  SwaCallbackOptions from_four = swa;
  from_four.start_epoch = 4;
  TrainOptions whole = without_dropout(from_four);
  whole.num_epochs = 8;
  const std::string hash = toy::train(whole).weights_hash;
  const TemporaryDirectory folder;
  TrainOptions first = without_dropout(swa);
  first.logdir = folder / "run";
  toy::train(first);
  TrainOptions rest = without_dropout(swa);
  rest.num_epochs = 8;
  rest.logdir = folder / "run";
  rest.resume = "last";
  EXPECT_EQ(toy::train(rest).weights_hash, hash);
}

TEST(Swa, SameBitsForAnyNumberOfWorkersAndResumedAndRecovered) {
  toy::expect_same_average([] {
    return std::make_shared<SwaCallback>(
        SwaCallbackOptions{.start_epoch = 2, .lr = 0.02, .anneal_epochs = 2});
  });
}

// Epochs have three steps, and only the first one of the last epoch changes the average. A run that
// is cut inside of the training is resumed after it.
TEST(Swa, SameBitsIfNoStepIsLeftThatChangesTheAverage) {
  toy::Warnings of_the_first_epochs;  // nothing is averaged in them
  toy::expect_same_average([] {
    return std::make_shared<SwaCallback>(SwaCallbackOptions{.start_epoch = 1, .every = 7});
  });
}

TEST(Swa, WhatCannotWorkIsRefused) {
  const auto error = [](const SwaCallbackOptions& swa) {
    return toy::error_of([&] { SwaCallback callback(swa); });
  };
  EXPECT_THAT(error({.start_epoch = 0}), HasSubstr("start_epoch: expected 1 or more, got 0"));
  EXPECT_THAT(error({.lr = -1.0}), HasSubstr("lr: expected a positive number, got -1"));
  EXPECT_THAT(error({.anneal_epochs = 3}), HasSubstr("there is no lr"));
  toy::Warnings warnings;
  toy::train(without_dropout({.start_epoch = 9}));
  EXPECT_THAT(warnings.texts, Contains(HasSubstr("before anything was averaged")));
}

}  // namespace
}  // namespace lockstep
