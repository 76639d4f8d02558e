#include "lockstep/callback/ema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/checkpoint/file.h"
#include "lockstep/state/hash.h"
#include "tests/callback/averaging_runs.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

const toy::MakeCallback kAverage = [] {
  return std::make_shared<EmaCallback>(EmaCallbackOptions{.decay = 0.8, .every = 2});
};

// The average that a run with two shards must have, computed from the weights after every update.
StateDict expected_average(const EmaCallbackOptions& ema, TrainOptions options) {
  StateDict average;
  std::int64_t n = 0;
  options.callbacks.add(on_step([&](State& s) {
    if (!s.is_train || s.progress.update_step < ema.start_step) return;
    const StateDict now = s.model.state();
    const double decay = EmaCallback(ema).decay_of(n);
    for (const auto& [name, value] : now) {
      const torch::Tensor weight = *value.get_if<torch::Tensor>();
      const bool is_copied = n == 0 || !weight.is_floating_point();
      average.set(name, is_copied
                            ? weight
                            : average.get<torch::Tensor>(name) * decay + weight * (1 - decay));
    }
    ++n;
  }));
  toy::train(options);
  return average;
}

TEST(Ema, TheRunEndsWithTheMovingAverage) {
  for (const bool warmup : {false, true}) {
    const EmaCallbackOptions ema{.decay = 0.9, .start_step = 3, .warmup = warmup};
    TrainOptions options = toy::options();
    options.callbacks.add(EmaCallback(ema));
    const StateDict ended = toy::train(options).model.state();
    const StateDict expected = expected_average(ema, toy::options());
    for (const auto& [name, value] : expected) {
      EXPECT_TRUE(
          ended.get<torch::Tensor>(name).allclose(*value.get_if<torch::Tensor>(), 1e-5, 1e-6))
          << name << (warmup ? " with warmup" : "");
    }
  }
}

// The formula of timm's ModelEmaV3(decay=0.999, use_warmup=True).get_decay(n + 1), in Python.
TEST(Ema, WarmupIsThatOfTimm) {
  const EmaCallback ema({.decay = 0.999, .warmup = true});
  EXPECT_NEAR(ema.decay_of(1), 0.3700394750525634, 1e-15);
  EXPECT_NEAR(ema.decay_of(10), 0.7978199917664258, 1e-15);
  EXPECT_NEAR(ema.decay_of(1000), 0.9900066611160449, 1e-15);
  EXPECT_EQ(ema.decay_of(40000), 0.999);
}

TEST(Ema, TrainingGoesOnWithTheTrainedWeights) {
  const auto loss_of = [](TrainOptions options) {
    return toy::train(options).history.at(3).at("train").at("loss");
  };
  TrainOptions averaged = toy::options();
  averaged.callbacks.add(EmaCallback({.decay = 0.9}));
  EXPECT_EQ(loss_of(averaged), loss_of(toy::options()));
}

TEST(Ema, ValidLoadersAreEvaluatedWithTheAverage) {
  TrainOptions options = toy::options();
  options.callbacks.add(EmaCallback({.decay = 0.9}));
  const TrainResult result = toy::train(options);
  const double evaluated = SupervisedRunner()
                               .evaluate_loader({.loader = options.loaders.at("valid"),
                                                 .model = result.model,
                                                 .criterion = torch::nn::CrossEntropyLoss()})
                               .at("loss");
  EXPECT_EQ(evaluated, result.last_metrics.at("valid").at("loss"));
  EXPECT_NE(evaluated, toy::train(toy::options()).last_metrics.at("valid").at("loss"));
}

TEST(Ema, SameBitsForAnyNumberOfWorkersAndResumedAndRecovered) {
  toy::expect_same_average(kAverage);
}

// Epochs have three steps. The second one of the last epoch changes the average, and the third one
// does not.
TEST(Ema, SameBitsIfBatchNormIsMadeAnew) {
  toy::expect_same_average([] {
    return std::make_shared<EmaCallback>(
        EmaCallbackOptions{.decay = 0.8, .every = 2, .remake_batch_norm = true});
  });
}

TEST(Ema, CheckpointsHaveBothWeights) {
  const TemporaryDirectory folder;
  TrainOptions options = toy::options();
  options.logdir = folder / "run";
  options.callbacks.add(EmaCallback({.decay = 0.9}));
  const TrainResult result = toy::train(options);
  const StateDict saved = checkpoint::load(folder / "run/checkpoints/last.pth");
  EXPECT_EQ(saved.get<std::int64_t>("lockstep"), 2) << "older versions must refuse it";
  EXPECT_EQ(content_hash(saved.get<StateDict>("model_state_dict")),
            content_hash(result.model.state()));
  // The trained weights are those of a run without an average.
  TrainOptions plain = toy::options();
  EXPECT_EQ(content_hash(saved.get<StateDict>("raw_model_state_dict")),
            content_hash(toy::train(plain).model.state()));
}

TEST(Ema, BestWeightsAreTheAverageOfTheBestEpoch) {
  for (const int workers : {1, 2}) {
    const TemporaryDirectory folder;
    TrainOptions options = toy::averaged_options(kAverage, workers);
    options.num_epochs = 4;
    options.logdir = folder / "run";
    options.load_best_on_end = true;
    options.valid_metric = "loss";
    options.minimize_valid_metric = false;  // so that an early epoch is the best
    const TrainResult result = toy::train(options);
    ASSERT_LT(result.best_epoch, 4);
    const StateDict best = checkpoint::load(folder / "run/checkpoints/best.pth");
    EXPECT_EQ(content_hash(best.get<StateDict>("model_state_dict")),
              content_hash(result.model.state()))
        << workers << " workers";
  }
}

TEST(Ema, ARunGoesOnFromTheTrainedWeights) {
  SupervisedRunner runner;
  TrainOptions options = toy::options();
  options.callbacks.add(EmaCallback({.decay = 0.9}));
  options.keep_run = true;
  TrainOptions whole = options;
  whole.model = toy::model();
  options.num_epochs = 1;
  runner.train(options);
  EXPECT_EQ(runner.continue_training({.num_epochs = 3}).weights_hash,
            toy::train(whole).weights_hash);
}

TEST(Ema, AResumeWithoutTheCallbackGoesOnWithTheTrainedWeights) {
  const TemporaryDirectory folder;
  TrainOptions first = toy::options();
  first.logdir = folder / "run";
  first.num_epochs = 2;
  first.callbacks.add(EmaCallback({.decay = 0.9}));
  toy::train(first);
  toy::Warnings warnings;
  TrainOptions rest = toy::options();
  rest.logdir = folder / "run";
  rest.resume = "last";
  EXPECT_EQ(toy::train(rest).weights_hash, toy::train(toy::options()).weights_hash);
  EXPECT_THAT(warnings.texts, Contains(HasSubstr("EmaCallback")));
}

TEST(Ema, OneOfSeveralNetworks) {
  const auto hash_of = [](int workers, bool averages) {
    TrainOptions options = toy::two_networks(workers);
    if (averages) options.callbacks.add(EmaCallback({.decay = 0.9, .networks = {"student"}}));
    return weights_hash(toy::TwoNetworks().train(options).models["student"].weights());
  };
  EXPECT_EQ(hash_of(1, true), hash_of(2, true));
  EXPECT_NE(hash_of(1, true), hash_of(1, false));
}

// Both networks are trained. The pass that makes the statistics of the student's average anew also
// runs the other network, whose own must stay as they were trained.
TEST(Ema, StatisticsOfNetworksThatAreNotAveragedStay) {
  const auto trained = [](bool averages) {
    TrainOptions options = toy::two_networks();
    options.optimizers = {{"student", optim::Adam{.lr = 0.01}},
                          {"teacher", optim::Adam{.lr = 0.01}}};
    if (averages) {
      options.callbacks.add(
          EmaCallback({.decay = 0.9, .networks = {"student"}, .remake_batch_norm = true}));
    }
    return toy::TwoNetworks().train(options);
  };
  const TrainResult with = trained(true), without = trained(false);
  EXPECT_EQ(weights_hash(with.models["teacher"].weights()),
            weights_hash(without.models["teacher"].weights()));
  EXPECT_NE(weights_hash(with.models["student"].buffers()),
            weights_hash(without.models["student"].buffers()));
}

TEST(Ema, WhatCannotWorkIsRefused) {
  const auto error = [](const EmaCallbackOptions& ema) {
    return toy::error_of([&] {
      TrainOptions options = toy::options();
      options.callbacks.add(EmaCallback(ema));
      toy::train(options);
    });
  };
  EXPECT_THAT(error({.decay = 1}), HasSubstr("EmaCallback: decay: expected a number from 0"));
  EXPECT_THAT(error({.every = 0}), HasSubstr("every: expected 1 or more, got 0"));
  EXPECT_THAT(error({.networks = {"modell"}}),
              AllOf(HasSubstr("there is no network 'modell'"), HasSubstr("'model'")));
  TrainOptions two = toy::options();
  two.callbacks.add(EmaCallback());
  two.callbacks.add(EmaCallback());
  EXPECT_THAT(toy::error_of([&] { toy::train(two); }), HasSubstr("a run has one average"));
}

TEST(Ema, WarnsIfNothingWasAveraged) {
  toy::Warnings warnings;
  TrainOptions options = toy::options();
  options.callbacks.add(EmaCallback({.start_epoch = 4}));
  toy::train(options);
  EXPECT_THAT(warnings.texts, Contains(HasSubstr("before anything was averaged")));
}

}  // namespace
}  // namespace lockstep
