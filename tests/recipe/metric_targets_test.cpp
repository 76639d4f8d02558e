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

// Each names one of the metrics that it adds.
TEST(MetricTargets, EachCanBeMade) {
  for (const auto& [text, metric] : std::vector<std::pair<std::string, std::string>>{
           {"{AccuracyCallback: {topk: [1, 2], num_classes: 10}}", "accuracy02"},
           {"{PrecisionRecallF1SupportCallback: {num_classes: 10}}", "f1/_macro"},
           {"{AUCCallback: {num_classes: 3, per_class: true}}", "auc/class_02"},
           {"BinaryAccuracyCallback", "accuracy"},
           {"{BinaryAccuracyCallback: {threshold: 0.3, scores: probabilities, prefix: a_}}",
            "a_accuracy"},
           {"{MultilabelAccuracyCallback: {num_classes: 4, scores: logits}}", "exact_match"},
           {"{BinaryPrecisionRecallF1SupportCallback: {threshold: 0.2, zero_division: 1}}",
            "recall"},
           {"{MultilabelPrecisionRecallF1SupportCallback: {num_classes: 4, per_class: true}}",
            "support/class_03"},
           {"LogLossCallback", "log_loss"},
           {"{CalibrationErrorCallback: {bins: 10, suffix: _b}}", "ece_b"},
           {"{IOUCallback: {num_classes: 3, per_class: true, ignore_index: 255}}", "iou/class_02"},
           {"{DiceCallback: {num_classes: 1, threshold: 0.3}}", "dice"},
           {"{PixelAccuracyCallback: {num_classes: 2, weights: [1, 2]}}",
            "pixel_accuracy/_weighted"},
           {"{TverskyCallback: {alpha: 0.7, num_classes: 2, prefix: a_}}", "a_tversky"},
           {"{TrevskyCallback: {alpha: 0.7, beta: 0.5, num_classes: 2}}", "tversky/_micro"},
           {"RegressionCallback", "r2"},
           {"{RegressionCallback: {metrics: [pearson], num_outputs: 2, per_output: true}}",
            "pearson/output_01"},
           {"{RankingCallback: {metrics: [any_hit, map], topk: [1, 5]}}", "map05"},
           {"{HitrateCallback: {topk: 3}}", "hitrate03"},
           {"MRRCallback", "mrr01"},
           {"{MAPCallback: {topk: [1, 3]}}", "map03"},
           {"{NDCGCallback: {prefix: my_}}", "my_ndcg01"},
           {"{RunningMeanCallback: {metrics: [loss], window: 20}}", "running_loss"}}) {
    SCOPED_TRACE(text);
    const auto callback = targets().callbacks.make(node(text));
    ASSERT_NE(callback, nullptr);
    EXPECT_THAT(callback->traits().metric_names.value(), Contains(metric));
  }
  EXPECT_NE(targets().callbacks.make(node("DefaultMetricCallback")), nullptr);
  EXPECT_NE(targets().callbacks.make(node("{ConfusionMatrixCallback: {class_names: [a, b]}}")),
            nullptr);
}

TEST(MetricTargets, RefuseWhatCannotBe) {
  const auto error = [](const std::string& text) {
    return error_of([&] { targets().callbacks.make(node(text)); });
  };
  EXPECT_THAT(error("IOUCallback"), HasSubstr("num_classes is missing"));
  EXPECT_THAT(error("{TverskyCallback: {alpha: 2, num_classes: 2}}"), HasSubstr("alpha"));
  EXPECT_THAT(error("{BinaryAccuracyCallback: {scores: odds}}"),
              HasSubstr("expected logits or probabilities, got 'odds'"));
  EXPECT_THAT(error("{RegressionCallback: {metrics: [msee]}}"), HasSubstr("did you mean 'mse'"));
  EXPECT_THAT(error("{RankingCallback: {topk: [0]}}"), HasSubstr("topk: expected 1 or more"));
  EXPECT_THAT(error("{CalibrationErrorCallback: {bins: 0}}"), HasSubstr("bins"));
}

}  // namespace
}  // namespace lockstep::recipe
