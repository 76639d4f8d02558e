#include "lockstep/callback/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<double> rates(TrainOptions options) {
  std::vector<double> seen;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_start = [&](State& s) {
    if (s.is_train) seen.push_back(s.optimizer->lr());
  };
  options.callbacks.add(hooks);
  toy::train(options);
  return seen;
}

TEST(SchedulerCallback, StepsAfterAnEpochOrAfterABatch) {
  TrainOptions options = toy::options();
  options.num_epochs = 2;
  options.optimizer = optim::SGD{.lr = 1.0};
  options.loaders = {{"train", {toy::points(6), {.batch_size = 2}}},
                     {"valid", {toy::points(4), {.batch_size = 2}}}};
  options.scheduler = optim::ExponentialLR{.gamma = 0.5};
  EXPECT_THAT(rates(options), ElementsAre(1, 1, 1, 0.5, 0.5, 0.5));
  options.scheduler = optim::ExponentialLR{.gamma = 0.5, .per = optim::Per::kBatch};
  EXPECT_THAT(rates(options), ElementsAre(1, 0.5, 0.25, 0.125, 0.0625, 0.03125));
  options.accumulation_steps = 2;
  EXPECT_THAT(rates(options), ElementsAre(1, 1, 0.5, 0.25, 0.25, 0.125)) << "after updates only";
}

// The warm-up ends inside the first epoch. The end of that epoch is a step of the next scheduler.
TEST(SchedulerCallback, AChainChangesWhenItSteps) {
  TrainOptions options = toy::options();
  options.num_epochs = 3;
  options.optimizer = optim::SGD{.lr = 1.0};
  options.loaders = {{"train", {toy::points(6), {.batch_size = 2}}},
                     {"valid", {toy::points(4), {.batch_size = 2}}}};
  options.scheduler = optim::warmup(2, optim::ExponentialLR{.gamma = 0.5}, {.start_factor = 0.5});
  EXPECT_THAT(rates(options), ElementsAre(0.5, 0.75, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25));
  // After the warm-up, the plateau never sees an improvement: each epoch halves the rate.
  options.scheduler = optim::warmup(
      2, optim::ReduceLROnPlateau{.factor = 0.5, .patience = 0, .threshold = 10, .eps = 0},
      {.start_factor = 0.5});
  EXPECT_THAT(rates(options), ElementsAre(0.5, 0.75, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25));
  options.valid_loader.reset();
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("scheduler SequentialLR: needs a metric"));
}

TEST(SchedulerCallback, APlateauFollowsTheMetricItIsTold) {
  TrainOptions options = toy::options();
  options.num_epochs = 4;
  options.optimizer = optim::SGD{.lr = 1e-9};
  options.loaders = {{"train", {toy::points(4), {.batch_size = 4}}},
                     {"valid", {toy::points(4), {.batch_size = 4}}}};
  options.scheduler =
      optim::ReduceLROnPlateau{.factor = 0.1, .patience = 0, .threshold = 0.5, .eps = 0};
  const auto seen = rates(options);
  EXPECT_DOUBLE_EQ(seen[1], 1e-9) << "the first epoch is the best so far";
  EXPECT_NEAR(seen[2], 1e-10, 1e-20) << "the second was not better by half";

  options.callbacks.add(SchedulerCallback({.metric = MetricKey{"train", "los"}}));
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("'loss'"));
}

TEST(SchedulerCallback, APlateauWithoutAMetricIsRefused) {
  TrainOptions options = toy::options();
  options.valid_loader.reset();
  options.scheduler = optim::ReduceLROnPlateau{};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("needs a metric"));
}

TEST(SchedulerCallback, WithoutASchedulerItIsRefused) {
  TrainOptions options = toy::options();
  options.callbacks = {SchedulerCallback()};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), HasSubstr("no scheduler"));
}

TEST(SchedulerCallback, APlateauGoesByWhatItsMetricSays) {
  const auto last_rate = [](std::optional<bool> minimize) {
    TrainOptions options = toy::options();
    options.num_epochs = 4;
    options.optimizer = optim::SGD{.lr = 1.0};
    options.scheduler = optim::ReduceLROnPlateau{.minimize = minimize, .patience = 0};
    auto rising = std::make_shared<toy::Hooks>();
    rising->loader_end = [](State& s) {
      s.loader_metrics["accuracy01"] = static_cast<double>(s.progress.epoch);
    };
    options.callbacks = {AccuracyCallback({.num_classes = 3}), rising,
                         SchedulerCallback({.metric = MetricKey{"valid", "accuracy01"}})};
    return rates(options).back();
  };
  EXPECT_DOUBLE_EQ(last_rate(std::nullopt), 1.0) << "an accuracy that rises gets better";
  EXPECT_NEAR(last_rate(true), 0.01, 1e-12);
}

// Two networks, each with a loss and an optimizer of its own.
struct TwoNetworks : Runner {
  void handle_batch(State& s) override {
    s.set_loss(s.models[s.phase](s.batch["features"]).square().mean());
  }
};

TrainOptions two_networks() {
  TrainOptions options = toy::options();
  options.model = {};
  options.criterion = {};
  options.optimizer = {};
  options.models = {{"a", torch::nn::Sequential(torch::nn::Linear(4, 1))},
                    {"b", torch::nn::Sequential(torch::nn::Linear(4, 1))}};
  options.optimizers = {{"a", optim::SGD{.lr = 0.001}}, {"b", optim::SGD{.lr = 0.001}}};
  options.phases = {"a", "b"};
  options.scheduler = optim::ReduceLROnPlateau{.minimize = true, .factor = 0.1, .patience = 0};
  return options;
}

TEST(SchedulerCallback, EachPlateauMayHaveItsOwnMetric) {
  std::vector<double> rates;
  const auto train = [&](const SchedulerCallbackOptions& scheduler) {
    TrainOptions options = two_networks();
    auto hooks = std::make_shared<toy::Hooks>();
    hooks->loader_end = [](State& s) {
      const auto epoch = static_cast<double>(s.progress.epoch);
      s.loader_metrics["rises"] = s.loader == "valid" ? epoch : 0;
      s.loader_metrics["falls"] = -epoch;
    };
    hooks->run_end = [&](State& s) { rates = {s.optimizers["a"]->lr(), s.optimizers["b"]->lr()}; };
    options.callbacks = {hooks, SchedulerCallback(scheduler)};
    TwoNetworks().train(options);
  };
  const MetricKey falls{"valid", "falls"};
  train({.metric = falls, .metrics = {{"b", {"valid", "rises"}}}});
  EXPECT_THAT(rates, ElementsAre(0.001, DoubleNear(0.00001, 1e-12)));
  train({.metric = falls, .metrics = {{"a", {"valid", "rises"}}}});
  EXPECT_THAT(rates, ElementsAre(DoubleNear(0.00001, 1e-12), 0.001));
  train({.metric = falls});
  EXPECT_THAT(rates, ElementsAre(0.001, 0.001));
}

TEST(SchedulerCallback, RefusesAMetricThatNoPlateauWouldSee) {
  TrainOptions options = two_networks();
  options.callbacks = {SchedulerCallback({.metrics = {{"c", {"valid", "loss"}}}})};
  EXPECT_THAT(toy::error_of([&] { TwoNetworks().train(options); }),
              HasSubstr("no scheduler has an optimizer 'c'"));
  options.callbacks = {SchedulerCallback({.metrics = {{"b", {"vald", "loss"}}}})};
  EXPECT_THAT(toy::error_of([&] { TwoNetworks().train(options); }),
              HasSubstr("scheduler ReduceLROnPlateau of 'b': there is no loader 'vald'"));
  options.scheduler = optim::ExponentialLR{.gamma = 0.5};
  options.callbacks = {SchedulerCallback({.metrics = {{"b", {"valid", "loss"}}}})};
  EXPECT_THAT(toy::error_of([&] { TwoNetworks().train(options); }),
              HasSubstr("valid/loss would be ignored"));
}

}  // namespace
}  // namespace lockstep
