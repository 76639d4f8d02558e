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
  EXPECT_FALSE(plan.optimizer);
  EXPECT_THAT(plan.loaders.names(), testing::ElementsAre("valid"));
  EXPECT_EQ(plan.step.shards, 1);
  const State state = state_of(plan);
  EXPECT_EQ(state.seed, 5u);
  EXPECT_EQ(state.progress.num_epochs, 1);
  EXPECT_EQ(state.selection.key, std::nullopt);
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
