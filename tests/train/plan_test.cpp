#include "lockstep/train/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "lockstep/engine/distributed.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

Plan resolved(const TrainOptions& options, RunnerParts runner = {}) {
  return resolve(options, resolve_engine(options), std::move(runner));
}

TEST(ResolveEngine, TakesTheGivenOneWorkersForDdpOrThisProcess) {
  TrainOptions options = toy::options();
  EXPECT_NE(dynamic_cast<DeviceEngine*>(resolve_engine(options).get()), nullptr);
  options.engine = std::make_shared<DeviceEngine>();
  EXPECT_EQ(resolve_engine(options), options.engine);
  options.engine = nullptr;
  options.ddp = true;
  options.workers = 2;
  options.shards = 6;
  const auto engine = resolve_engine(options);
  EXPECT_EQ(engine->workers(), 2);
  EXPECT_EQ(engine->shards(), 6);
}

TEST(ResolveEngine, ContradictionsNameTheirPart) {
  TrainOptions options = toy::options();
  options.ddp = true;
  options.engine = std::make_shared<DeviceEngine>();
  try {
    resolve_engine(options);
    FAIL() << "accepted";
  } catch (const PlanError& error) {
    EXPECT_EQ(error.part(), "engine");
    EXPECT_THAT(error.what(), testing::StartsWith("engine: a DeviceEngine is one process"));
    EXPECT_THAT(error.reason(), testing::StartsWith("a DeviceEngine is one process"));
  }
  options.ddp = false;
  options.num_epochs = 0;
  EXPECT_THAT(toy::error_of([&] { resolve_engine(options); }), HasSubstr("num_epochs"));
}

TEST(Resolve, DecidesEverythingOnce) {
  TrainOptions options = toy::options();
  options.callbacks = {AccuracyCallback({.num_classes = 3})};
  options.valid_metric = "accuracy01";
  options.accumulation_steps = 2;
  options.ddp = true;
  options.workers = 1;
  options.shards = 4;
  const Plan plan =
      resolved(options, {.loss_key = "nll", .metrics = std::vector<std::string>{"x"}});
  EXPECT_EQ(plan.selection.key->metric, "accuracy01");
  EXPECT_FALSE(plan.selection.minimize) << "the metric says that larger is better";
  EXPECT_EQ(plan.step.accumulation_steps, 2);
  EXPECT_EQ(plan.step.shards, 4);
  EXPECT_THAT(*plan.known_metrics,
              testing::IsSupersetOf({"nll", "nll/std", "x", "x/std", "lr", "accuracy01"}));
  const State state = state_of(plan);
  EXPECT_EQ(state.selection.key->metric, "accuracy01");
  EXPECT_EQ(state.better("nll"), Better::kSmaller);
  EXPECT_EQ(state.better("unknown"), std::nullopt);
}

TEST(Resolve, LearningRatesAreScaledOnce) {
  TrainOptions options = toy::options();
  options.lr_base_batch_size = 32;
  EXPECT_EQ(resolved(options).lr_factor, 0.25);
  options.lr_base_batch_size = std::nullopt;
  EXPECT_EQ(resolved(options).lr_factor, 1.0);
  options.lr_base_batch_size = 0;
  EXPECT_EQ(toy::error_of([&] { resolved(options); }),
            "lr_base_batch_size: expected 1 or more, got 0");
  options.lr_base_batch_size = 32;
  options.optimizer = std::make_shared<torch::optim::SGD>(
      std::vector{torch::ones({2}).requires_grad_()}, torch::optim::SGDOptions(0.1));
  EXPECT_THAT(toy::error_of([&] { resolved(options); }),
              HasSubstr("expected an optimizer that the run makes"));
}

TEST(Resolve, TheLossIsTheDefaultMetricUnderItsOwnKey) {
  const Plan plan = resolved(toy::options(), {.loss_key = "nll"});
  EXPECT_EQ(plan.selection.key->metric, "nll");
  EXPECT_TRUE(plan.selection.minimize);
}

TEST(Resolve, MetricsAreUnknownIfTheRunnerOrACallbackMayAddAny) {
  TrainOptions options = toy::options();
  EXPECT_EQ(resolved(options).known_metrics, std::nullopt) << "the runner does not say";
  struct Any : Callback {};
  options.callbacks = {Any()};
  EXPECT_EQ(resolved(options, {.metrics = no_metrics()}).known_metrics, std::nullopt);
}

TEST(Resolve, AnEvaluationIsOneEpochOfOneLoaderWithoutAnOptimizer) {
  const Plan plan = resolve(
      EvaluateOptions{.loader = {toy::points(6)}, .model = toy::model(), .seed = 5}, RunnerParts{});
  EXPECT_TRUE(plan.optimizers.empty());
  ASSERT_EQ(plan.phases.size(), 1u);
  EXPECT_EQ(plan.phases[0].name, "");
  EXPECT_TRUE(plan.models.contains("model"));
  EXPECT_THAT(plan.loaders.names(), testing::ElementsAre("valid"));
  EXPECT_EQ(plan.step.shards, 1);
  const State state = state_of(plan);
  EXPECT_EQ(state.seed, 5u);
  EXPECT_EQ(state.progress.num_epochs, 1);
  EXPECT_EQ(state.selection.key, std::nullopt);
}

// Two networks, "generator" and "critic", each with an optimizer.
TrainOptions two_networks() {
  TrainOptions options = toy::options();
  options.model = {};
  options.models = {{"generator", toy::model(1)}, {"critic", toy::model(2)}};
  options.optimizer = {};
  options.optimizers = {{"generator", optim::SGD{.lr = 0.1}}, {"critic", optim::Adam{}}};
  return options;
}

std::string networks_refusal(const std::function<void(TrainOptions&)>& change) {
  TrainOptions options = two_networks();
  change(options);
  return toy::error_of([&] { resolved(options); });
}

TEST(Resolve, SeveralNetworksHaveTheirOwnOptimizers) {
  TrainOptions options = two_networks();
  options.schedulers = {{"critic", optim::ExponentialLR{.gamma = 0.5}}};
  const Plan plan = resolved(options, {.metrics = no_metrics()});
  EXPECT_EQ(plan.model.parameters().front().first, "generator.0.weight");
  ASSERT_EQ(plan.optimizers.size(), 2u);
  EXPECT_FALSE(plan.optimizers[0].scheduler);
  EXPECT_TRUE(plan.optimizers[1].scheduler);
  EXPECT_EQ(parameters_of(plan, plan.optimizers[1]).front().first, "critic.0.weight");
  EXPECT_EQ(parameters_of(plan, plan.optimizers[1]).size(), toy::model()->parameters().size());
  ASSERT_EQ(plan.phases.size(), 1u);
  EXPECT_THAT(plan.phases[0].optimizers, testing::ElementsAre("generator", "critic"));
  EXPECT_THAT(*plan.known_metrics, testing::IsSupersetOf({"lr/generator", "lr/critic", "loss"}));
  EXPECT_TRUE(untrained_networks(plan).empty());
}

TEST(Resolve, OneOptimizerTrainsAllNetworksAndOneSchedulerIsForAllOptimizers) {
  TrainOptions options = two_networks();
  options.scheduler = optim::ExponentialLR{.gamma = 0.5};
  EXPECT_TRUE(resolved(options).optimizers[1].scheduler);
  options.optimizers = {};
  options.optimizer = optim::SGD{.lr = 0.1};
  const Plan plan = resolved(options);
  ASSERT_EQ(plan.optimizers.size(), 1u);
  EXPECT_EQ(parameters_of(plan, plan.optimizers[0]).size(), plan.model.parameters().size());
}

TEST(Resolve, PhasesStepTheOptimizersOfTheirNames) {
  TrainOptions options = two_networks();
  options.phases = {"critic", Phase{.name = "fool", .optimizers = {"generator"}, .every = 3}};
  const Plan plan = resolved(options, {.metrics = no_metrics()});
  EXPECT_EQ(phase_of(plan, plan.optimizers[0]).name, "fool");
  EXPECT_EQ(phase_of(plan, plan.optimizers[1]).name, "critic");
  EXPECT_THAT(*plan.known_metrics,
              testing::IsSupersetOf({"loss", "loss/critic", "loss/fool", "loss/fool/std"}));
  EXPECT_EQ(state_of(plan).better("loss/fool"), Better::kSmaller);
}

TEST(Resolve, ATermOfTheLossIsBetterWhenSmaller) {
  SupervisedKeys keys;
  keys.losses = {{.name = "a"}, {.name = "b"}};
  const State state = state_of(resolved(toy::options(), {.keys = keys}));
  EXPECT_EQ(state.better("loss/b"), Better::kSmaller);
  EXPECT_EQ(state.better("loss/c"), std::nullopt);
}

// The train loader has 7 batches.
TEST(Resolve, AScheduleSpansTheUpdatesOfItsOptimizer) {
  TrainOptions options = two_networks();
  options.phases = {"critic", Phase{.name = "generator", .every = 3}};
  options.num_epochs = 2;
  const Plan plan = resolved(options);
  EXPECT_EQ(schedule_of(plan, plan.optimizers[1]).steps(optim::Per::kBatch), 14);
  EXPECT_EQ(schedule_of(plan, plan.optimizers[0]).steps(optim::Per::kBatch), 6) << "at most 3 each";
  options.num_epochs = 1;
  options.num_steps = 10;
  const Plan limited = resolved(options);
  EXPECT_EQ(schedule_of(limited, limited.optimizers[1]).steps(optim::Per::kBatch), 10);
  EXPECT_EQ(schedule_of(limited, limited.optimizers[0]).steps(optim::Per::kBatch), 3);
}

TEST(Resolve, ANetworkWithoutAnOptimizerIsNotTrained) {
  TrainOptions options = two_networks();
  options.optimizers = {{"generator", optim::SGD{.lr = 0.1}}};
  const Plan plan = resolved(options);
  EXPECT_THAT(untrained_networks(plan), testing::ElementsAre("critic"));
  EXPECT_EQ(parameters_of(plan, plan.optimizers[0]).size(), toy::model()->parameters().size());
}

TEST(Resolve, NamesThatDoNotExistAreRefusedWithTheNearest) {
  EXPECT_THAT(networks_refusal([](auto& o) { o.optimizers.set("citric", optim::Adam{}); }),
              testing::AllOf(HasSubstr("'citric'"), HasSubstr("did you mean 'critic'?")));
  EXPECT_THAT(networks_refusal([](auto& o) {
                o.schedulers = {{"generater", optim::ExponentialLR{.gamma = 0.5}}};
              }),
              testing::AllOf(HasSubstr("'generater'"), HasSubstr("did you mean 'generator'?")));
  EXPECT_THAT(networks_refusal([](auto& o) {
                o.phases = {"critic", "generater"};
              }),
              testing::AllOf(HasSubstr("'generater'"), HasSubstr("did you mean 'generator'?")));
}

TEST(Resolve, EveryOptimizerBelongsToOnePhase) {
  EXPECT_THAT(networks_refusal([](auto& o) { o.phases = {"critic"}; }),
              HasSubstr("none steps the optimizer 'generator'"));
  EXPECT_THAT(networks_refusal([](auto& o) {
                o.phases = {"critic", Phase{.name = "all", .optimizers = {"generator", "critic"}}};
              }),
              HasSubstr("'critic' and 'all' both step the optimizer 'critic'"));
  EXPECT_THAT(networks_refusal([](auto& o) {
                o.phases = {"critic", "critic", "generator"};
              }),
              HasSubstr("'critic' comes twice"));
  EXPECT_THAT(networks_refusal([](auto& o) {
                o.phases = {"critic", Phase{.name = "generator", .every = 0}};
              }),
              HasSubstr("'generator': every: expected 1 or more, got 0"));
  EXPECT_THAT(
      networks_refusal([](auto& o) {
        o.phases = {Phase{.name = "critic", .every = 2}, Phase{.name = "generator", .every = 2}};
      }),
      HasSubstr("every = 1"));
}

TEST(Resolve, OneAndSeveralOfAKindExcludeEachOther) {
  EXPECT_THAT(networks_refusal([](auto& o) { o.model = toy::model(); }),
              HasSubstr("model and models"));
  EXPECT_THAT(networks_refusal([](auto& o) { o.optimizer = optim::Adam{}; }),
              HasSubstr("optimizer and optimizers"));
  EXPECT_THAT(networks_refusal([](auto& o) {
                o.criterions = {{"mse", torch::nn::MSELoss()}};
              }),
              HasSubstr("criterion and criterions"));
}

TEST(Resolve, NetworksThatAreTrainedSeparatelyShareNoTensor) {
  const auto shared = toy::model();
  const auto share = [&](TrainOptions& o) {
    o.models = {{"generator", shared}, {"critic", shared}};
  };
  EXPECT_THAT(networks_refusal(share),
              testing::AllOf(HasSubstr("'generator.0.weight'"), HasSubstr("'critic.0.weight'")));
  EXPECT_EQ(networks_refusal([&](auto& o) {
              share(o);
              o.optimizers = {};
              o.optimizer = optim::Adam{};
            }),
            "")
      << "one optimizer knows that they are the same";
}

TEST(Resolve, ASupervisedRunnerHasOneNetwork) {
  EXPECT_THAT(toy::error_of([] { resolved(two_networks(), {.keys = SupervisedKeys{}}); }),
              testing::AllOf(HasSubstr("generator, critic"), HasSubstr("derive from Runner")));
}

TEST(Resolve, AnErrorInALoaderNamesIt) {
  TrainOptions options = toy::options();
  options.loaders.set("valid", {toy::points(0)});
  try {
    resolved(options);
    FAIL() << "accepted";
  } catch (const PlanError& error) {
    EXPECT_EQ(error.part(), "loaders/valid");
    EXPECT_STREQ(error.what(), "loader 'valid': its dataset is empty");
    EXPECT_EQ(error.reason(), "its dataset is empty");
  }
}

}  // namespace
}  // namespace lockstep
