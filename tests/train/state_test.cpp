#include "lockstep/train/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(MetricKeys, AnUnknownLoaderGetsTheNearestName) {
  State state;
  state.loaders = toy::loaders();
  EXPECT_THAT(toy::error_of([&] {
                check_metric_key(state, {"vaild", "loss"}, "EarlyStopping");
              }),
              AllOf(HasSubstr("EarlyStopping"), HasSubstr("'vaild'"), HasSubstr("'valid'")));
}

TEST(MetricKeys, AnUnknownMetricIsRefusedWhereAllAreKnown) {
  State state;
  state.loaders = toy::loaders();
  EXPECT_NO_THROW(check_metric_key(state, {"valid", "mine"}, "x"));
  state.known_metrics = {"loss", "accuracy01"};
  EXPECT_NO_THROW(check_metric_key(state, {"valid", "accuracy01"}, "x"));
  EXPECT_THAT(toy::error_of([&] {
                check_metric_key(state, {"valid", "acuracy01"}, "x");
              }),
              AllOf(HasSubstr("'acuracy01'"), HasSubstr("'accuracy01'")));
}

TEST(MetricKeys, AValueThatIsNotThereIsNamed) {
  State state;
  state.progress.epoch = 3;
  state.epoch_metrics["valid"]["loss"] = 0.5;
  EXPECT_EQ(metric_value(state, {"valid", "loss"}, "x"), 0.5);
  EXPECT_THAT(toy::error_of([&] {
                metric_value(state, {"valid", "los"}, "x");
              }),
              HasSubstr("'loss'"));
  EXPECT_THAT(toy::error_of([&] {
                metric_value(state, {"train", "loss"}, "x");
              }),
              HasSubstr("epoch 3"));
}

TEST(State, TheLossIsSaidWithWhatItIsAMeanOver) {
  State state;
  state.batch.set("features", torch::ones({4, 2}));
  state.set_loss(torch::tensor(2.0), mean_over(3));
  EXPECT_EQ(state.loss_over(), mean_over(3));
  EXPECT_EQ(state.batch["loss"].item<double>(), 2.0);
  state.batch.set("loss", torch::tensor(1.0));
  EXPECT_EQ(state.loss_over(), mean_over_samples()) << "put there without set_loss";
  EXPECT_THROW(state.set_loss(torch::tensor(1.0), mean_over(-1)), DataError);
  EXPECT_THROW(state.set_metric("m", 1.0, mean_over(std::nan(""))), DataError);
}

// A shard waits for the others of its batch, with what was said about its loss.
TEST(State, AShardIsTakenOutAndPutBackAsAWhole) {
  State state;
  state.set_shard({.shard = 3});
  state.batch.set("features", torch::ones({4, 2}));
  state.set_loss(torch::tensor(2.0), mean_over(3));
  state.set_metric("m", 1.0, mean_over(2));
  ShardState waiting = state.take_shard();
  EXPECT_FALSE(state.batch.contains("features"));
  EXPECT_TRUE(state.batch_metrics.empty());
  EXPECT_EQ(state.loss_over(), mean_over_samples());
  state.set_shard(std::move(waiting));
  EXPECT_EQ(state.shard, 3);
  EXPECT_EQ(state.loss_over(), mean_over(3));
  EXPECT_EQ(state.batch_metrics.at("m"), 1.0);
}

TEST(State, APassBeginsWithNothingOfTheOneBefore) {
  State state;
  state.loader_metrics["loss"] = 1;
  state.may_write_gradients = true;
  state.set_pass({.loader = "valid", .loader_batches = 3});
  EXPECT_EQ(state.loader, "valid");
  EXPECT_EQ(state.loader_batches, 3);
  EXPECT_TRUE(state.loader_metrics.empty());
  EXPECT_FALSE(state.may_write_gradients);
}

TEST(State, TermsOfALossOverTheSameAreALossOverIt) {
  State state;
  state.batch.set("features", torch::ones({4, 2}));
  state.add_loss(torch::tensor(2.0), mean_over(4));
  state.add_loss(torch::tensor(1.0));
  EXPECT_EQ(state.loss_over(), mean_over(4)) << "its four samples";
  EXPECT_EQ(state.batch["loss"].item<double>(), 3.0);
  state.add_loss(torch::tensor(1.0), mean_over(3));
  EXPECT_EQ(state.loss_over().kind, LossOver::Kind::kMixed);
}

TEST(State, ALoaderThatIsLeftOutHasNoMetric) {
  State state;
  state.loaders = toy::loaders();
  EXPECT_THAT(toy::error_of([&] { state.skip_loader("vaild"); }),
              HasSubstr("skip_loader: there is no loader 'vaild'; did you mean 'valid'?"));
  const MetricKey key{"valid", "loss"};
  EXPECT_THROW(metric_if_run(state, key, "a test"), ConfigError) << "it should have run";
  state.skip_loader("valid");
  EXPECT_FALSE(metric_if_run(state, key, "a test"));
  state.skipped_loaders.clear();
  state.epoch_metrics["valid"]["loss"] = 0.5;
  EXPECT_EQ(metric_if_run(state, key, "a test"), 0.5);
}

}  // namespace
}  // namespace lockstep
