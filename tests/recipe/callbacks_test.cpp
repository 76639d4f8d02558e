#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/recipe/targets.h"
#include "tests/recipe/support.h"

namespace lockstep::recipe {
namespace {

using ::testing::Contains;
using testing::error_of;
using ::testing::HasSubstr;
using testing::node;

TEST(Callbacks, EachCanBeMade) {
  for (const char* const text :
       {"{AccuracyCallback: {topk: [1, 2], num_classes: 10}}",
        "{PrecisionRecallF1SupportCallback: {num_classes: 10}}",
        "{AUCCallback: {num_classes: 3, per_class: true}}",
        "{ConfusionMatrixCallback: {class_names: [a, b]}}",
        "{CriterionCallback: {criterion: L1Loss, metric_key: l1, weight: 0.5}}",
        "{EarlyStoppingCallback: {patience: 2, metric: valid/loss, minimize: true}}",
        "{CheckpointCallback: {save_n_best: 3, mode: model}}",
        "{SchedulerCallback: {metric: valid/loss}}",
        "{SchedulerCallback: {metrics: {generator: valid/loss/generator}}}",
        "{CheckRunCallback: {num_batches: 1}}",
        "{BatchOverfitCallback: {batches: {train: 2, valid: 0.5}}}",
        "{ControlFlowCallback: {callback: {AccuracyCallback: {topk: 1}}, loaders: valid}}",
        "{ControlFlowCallback: {callback: {_target_: EarlyStoppingCallback}, every: 2, "
        "loader_epochs: {valid: [1, 2], train: 3}}}",
        "{FreezeCallback: {names: encoder.*, epochs: 2}}",
        "{FreezeCallback: {names: [\"0.*\", \"1.*\"], from_epoch: 3}}",
        "{PeriodicLoaderCallback: {every: {valid: 5, test: 0}}}",
        "TimerCallback",
        "{MetricAggregationCallback: {metric_key: score, metrics: [loss, accuracy01], mode: sum}}",
        "{MetricAggregationCallback: {metric_key: score, weights: {loss: -1, auc: 2}, "
        "mode: weighted_mean, scope: loader, multiplier: 100}}",
        "{BatchTransformCallback: {transform: {Normalize: {mean: 1, std: 2}}, "
        "scope: on_forward, input_key: image, output_key: small}}",
        "{EmaCallback: {decay: 0.9, every: 2, start_step: 3, warmup: true, networks: [net]}}",
        "{SwaCallback: {start_epoch: 2, lr: 0.1, anneal_epochs: 0, anneal: linear}}",
        "{SoftUpdateCallback: {source: student, target: teacher, tau: 0.5}}",
        "{GradientNormsCallback: {by: module, names: 0.*, every: 2}}",
        "{HistogramsCallback: {names: 0.*, gradients: false, every_steps: 10}}",
        "{LRFinderCallback: {first_lr: 0.001, final_lr: 1, num_steps: 20, scale: linear}}",
        "{CmcCallback: {embeddings_key: features, topk: [1, 5]}}",
        "{ReidCmcCallback: {pids_key: person, cids_key: camera, topk: 1}}",
        "ProgressBarCallback"}) {
    EXPECT_NE(targets().callbacks.make(node(text)), nullptr) << text;
  }
}

TEST(Callbacks, OptionsReachThem) {
  const auto accuracy =
      targets().callbacks.make(node("{AccuracyCallback: {topk: 2, prefix: my_}}"));
  EXPECT_THAT(*accuracy->traits().metric_names, Contains("my_accuracy02"));
  const auto loss =
      targets().callbacks.make(node("{CriterionCallback: {criterion: L1Loss, metric_key: l1}}"));
  EXPECT_THAT(*loss->traits().metric_names, Contains("l1"));
  const auto flow = targets().callbacks.make(node(
      "{ControlFlowCallback: {callback: {AccuracyCallback: {topk: 3}}, ignore_loaders: [train]}}"));
  EXPECT_EQ(flow->name(), "AccuracyCallback");
  const auto score = targets().callbacks.make(
      node("{MetricAggregationCallback: {metric_key: score, metrics: [loss], scope: loader}}"));
  EXPECT_EQ(score->traits().metric_names, std::vector<std::string>{"score"});
  const auto transform = targets().callbacks.make(
      node("{BatchTransformCallback: {transform: ToTensor, input_key: a, output_key: b}}"));
  EXPECT_THAT(transform->agreed_options(), HasSubstr("input_key=a, output_key=b"));
  const auto scheduler =
      targets().callbacks.make(node("{SchedulerCallback: {metrics: {critic: valid/loss/critic}}}"));
  EXPECT_THAT(scheduler->agreed_options(), HasSubstr("{critic: valid/loss/critic}"));
  EXPECT_THAT(*flow->traits().metric_names, Contains("accuracy03"));
}

TEST(Callbacks, RefuseWhatCannotBe) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().callbacks.make(node(text)); });
  };
  EXPECT_THAT(error("PrecisionRecallF1SupportCallback"), HasSubstr("num_classes is missing"));
  EXPECT_THAT(error("{CheckpointCallback: {mode: half}}"),
              HasSubstr("expected full or model or none, got 'half'"));
  EXPECT_THAT(error("{EarlyStoppingCallback: {patience: 0}}"), HasSubstr("patience"));
  EXPECT_THAT(error("{CriterionCallback: {criterion: L2Loss}}"),
              HasSubstr("unknown criterion 'L2Loss'"));
  EXPECT_THAT(error("{ControlFlowCallback: {every: 2}}"), HasSubstr("callback is missing"));
  EXPECT_THAT(error("{ControlFlowCallback: {callback: TimerCallback}}"),
              HasSubstr("expected loaders, ignore_loaders"));
  EXPECT_THAT(error("{ControlFlowCallback: {callback: TimeCallback, every: 2}}"),
              HasSubstr("unknown callback 'TimeCallback'"));
  EXPECT_THAT(error("{PeriodicLoaderCallback: {every: {valid: -1}}}"), HasSubstr("got -1"));
  EXPECT_THAT(error("{MetricAggregationCallback: {metrics: [loss]}}"),
              HasSubstr("metric_key is missing"));
  EXPECT_THAT(error("{MetricAggregationCallback: {metric_key: a, metrics: [b], mode: max}}"),
              HasSubstr("got 'max'"));
  EXPECT_THAT(error("{BatchTransformCallback: {input_key: a}}"), HasSubstr("transform is missing"));
}

}  // namespace
}  // namespace lockstep::recipe
