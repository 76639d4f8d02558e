#include "lockstep/callback/metric_aggregation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/classification.h"
#include "lockstep/callback/lambda.h"
#include "tests/support/toy.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using Options = MetricAggregationCallbackOptions;

// Batches have the metrics a, which is a mean over samples, and b, which is a mean over something
// else. The valid loader has batches of 10, 10 and 10 samples.
struct TwoMetrics : SupervisedRunner {
  void handle_batch(State& s) override {
    SupervisedRunner::handle_batch(s);
    const auto batch = static_cast<double>(s.loader_batch);
    s.batch_metrics["a"] = batch;
    s.set_metric("b", 10 * batch, mean_over(batch));
  }
  std::optional<std::vector<std::string>> metric_names() const override {
    return std::vector<std::string>{"a", "b"};
  }
};

Metrics valid_metrics(const Options& aggregation) {
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.callbacks = {AccuracyCallback({.num_classes = 3}),
                       MetricAggregationCallback(aggregation)};
  return TwoMetrics().train(options).last_metrics.at("valid");
}

TEST(MetricAggregation, CombinesMetricsOfALoader) {
  const auto score = [](Options options) {
    options.metric_key = "score";
    options.scope = MetricScope::kLoader;
    return valid_metrics(options).at("score");
  };
  const Metrics plain = valid_metrics({.metric_key = "score", .metrics = {"a"}});
  const double a = plain.at("a");
  const double accuracy = plain.at("accuracy01");
  EXPECT_DOUBLE_EQ(a, 2);
  using enum AggregationMode;
  const std::vector<std::string> names = {"a", "accuracy01"};
  EXPECT_DOUBLE_EQ(score({.metrics = names, .mode = kSum}), a + accuracy);
  EXPECT_DOUBLE_EQ(score({.metrics = names}), (a + accuracy) / 2) << "the default is the mean";
  const std::map<std::string, double> weights = {{"a", 3}, {"accuracy01", -1}};
  EXPECT_DOUBLE_EQ(score({.weights = weights, .mode = kWeightedSum}), 3 * a - accuracy);
  EXPECT_DOUBLE_EQ(score({.weights = weights, .mode = kWeightedMean, .multiplier = 10}),
                   10 * (3 * a - accuracy) / 2);
  EXPECT_DOUBLE_EQ(
      score({.metrics = names,
             .function = [](std::span<const double> v) { return v[0] * v[0] - v[1]; }}),
      a * a - accuracy);
}

// The mean of b is (10 * 1 + 20 * 2 + 30 * 3) / 6.
TEST(MetricAggregation, CombinesMetricsOfBatchesExactly) {
  using enum AggregationMode;
  const Metrics sum =
      valid_metrics({.metric_key = "score", .metrics = {"a", "b", "loss"}, .mode = kSum});
  EXPECT_DOUBLE_EQ(sum.at("b"), 140.0 / 6);
  EXPECT_DOUBLE_EQ(sum.at("score"), sum.at("a") + sum.at("b") + sum.at("loss"));
  // The squares of a are 1, 4 and 9.
  const Metrics squares =
      valid_metrics({.metric_key = "score", .metrics = {"a"}, .function = [](auto values) {
                       return values[0] * values[0];
                     }});
  EXPECT_DOUBLE_EQ(squares.at("score"), 14.0 / 3) << "the mean of squares, not the square of means";
}

TEST(MetricAggregation, EveryBatchHasTheMetric) {
  std::vector<double> seen;
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.callbacks = {
      MetricAggregationCallback({.metric_key = "twice", .metrics = {"a"}, .multiplier = 2}),
      on_batch_end([&](State& s) {
        if (!s.is_train) seen.push_back(s.batch_metrics.at("twice"));
      })};
  TwoMetrics().train(options);
  EXPECT_THAT(seen, testing::ElementsAre(2, 4, 6));
}

TEST(MetricAggregation, MayChooseTheBestEpoch) {
  TrainOptions options = toy::options();
  options.callbacks = {
      AccuracyCallback({.num_classes = 3}),
      MetricAggregationCallback(
          {.metric_key = "score", .metrics = {"accuracy01", "a"}, .scope = MetricScope::kLoader})};
  options.valid_metric = "score";
  options.minimize_valid_metric = false;
  const TrainResult result = TwoMetrics().train(options);
  EXPECT_EQ(result.best_metric, result.history.at(result.best_epoch).at("valid").at("score"));
}

// The loss of a batch with phases is the sum over phases, which is known after all of them.
TEST(MetricAggregation, UsesTheLossesOfPhases) {
  struct Phased : Runner {
    void handle_batch(State& s) override {
      s.set_loss(s.models[s.phase](s.batch["features"]).square().mean());
    }
  };
  TrainOptions options = toy::options();
  options.model = {};
  options.criterion = {};
  options.optimizer = {};
  options.models = {{"a", torch::nn::Sequential(torch::nn::Linear(4, 1))},
                    {"b", torch::nn::Sequential(torch::nn::Linear(4, 1))}};
  options.optimizers = {{"a", optim::SGD{.lr = 0.001}}, {"b", optim::SGD{.lr = 0.001}}};
  options.phases = {"a", Phase{.name = "b", .every = 2}};
  options.callbacks = {MetricAggregationCallback(
      {.metric_key = "both", .metrics = {"loss/a", "loss/b"}, .mode = AggregationMode::kSum})};
  const Metrics metrics = Phased().train(options).last_metrics.at("train");
  EXPECT_DOUBLE_EQ(metrics.at("both"), metrics.at("loss"));
}

TEST(MetricAggregation, RefusesWhatMakesNoSense) {
  const auto refused = [](const Options& options) {
    return toy::error_of([&] { MetricAggregationCallback callback(options); });
  };
  using enum AggregationMode;
  EXPECT_THAT(refused({.metric_key = "", .metrics = {"a"}}), HasSubstr("metric_key"));
  EXPECT_THAT(refused({.metric_key = "x"}), HasSubstr("at least one"));
  EXPECT_THAT(refused({.metric_key = "a", .metrics = {"a"}}), HasSubstr("another name"));
  EXPECT_THAT(refused({.metric_key = "x", .metrics = {"a"}, .mode = kWeightedSum}),
              HasSubstr("takes weights"));
  EXPECT_THAT(refused({.metric_key = "x", .weights = {{"a", 1}}}), HasSubstr("expected metrics"));
  EXPECT_THAT(refused({.metric_key = "x", .weights = {{"a", 1}, {"b", -1}}, .mode = kWeightedMean}),
              HasSubstr("their sum is 0"));
  EXPECT_THAT(refused({.metric_key = "x",
                       .metrics = {"a"},
                       .mode = kSum,
                       .function = [](auto) { return 0.0; }}),
              HasSubstr("got both"));
  const auto run = [](const Options& options) {
    return toy::error_of([&] { valid_metrics(options); });
  };
  EXPECT_THAT(run({.metric_key = "x", .metrics = {"accuracy1"}}), HasSubstr("'accuracy01'"));
  EXPECT_THAT(run({.metric_key = "loss", .metrics = {"a"}}), HasSubstr("CriterionCallback"));
  EXPECT_THAT(run({.metric_key = "x", .metrics = {"accuracy01"}}),
              HasSubstr("after the forward pass of a batch there is no metric 'accuracy01'"));
}

}  // namespace
}  // namespace lockstep
