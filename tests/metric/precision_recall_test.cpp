#include "lockstep/metric/precision_recall.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

void expect_scores(const Metrics& metrics, const std::string& average, const nlohmann::json& row) {
  expect_near(metrics.at("precision/" + average), row[0], "precision " + average);
  expect_near(metrics.at("recall/" + average), row[1], "recall " + average);
  expect_near(metrics.at("f1/" + average), row[2], "f1 " + average);
}

TEST(PrecisionRecallF1Support, IsWhatScikitLearnSays) {
  for (const auto& set : golden().at("labelled")) {
    SCOPED_TRACE(set.at("name").get<std::string>());
    const torch::Tensor scores = matrix_of<float>(set.at("scores"));
    PrecisionRecallF1Support metric({.num_classes = scores.size(1), .per_class = true});
    metric.update(scores, vector_of<std::int64_t>(set.at("labels")));
    const Metrics metrics = metric.compute();
    const auto& expected = set.at("precision_recall");
    for (const char* average : {"_micro", "_macro", "_weighted"}) {
      expect_scores(metrics, average, expected.at(average));
    }
    for (std::size_t c = 0; c < expected.at("class").size(); ++c) {
      const std::string name = fmt::format("class_{:02}", c);
      expect_scores(metrics, name, expected.at("class")[c]);
      EXPECT_EQ(metrics.at("support/" + name), expected.at("class")[c][3]);
    }
  }
}

TEST(PrecisionRecallF1Support, NamesAreKnownBeforehand) {
  const PrecisionRecallF1Support averages({.num_classes = 2, .prefix = "a_", .suffix = "_b"});
  EXPECT_THAT(averages.names(),
              testing::ElementsAre("a_precision_b/_micro", "a_precision_b/_macro",
                                   "a_precision_b/_weighted", "a_recall_b/_micro",
                                   "a_recall_b/_macro", "a_recall_b/_weighted", "a_f1_b/_micro",
                                   "a_f1_b/_macro", "a_f1_b/_weighted"));
  expect_names_match(averages);
  const PrecisionRecallF1Support per_class({.num_classes = 11, .per_class = true});
  EXPECT_THAT(per_class.names(), testing::IsSupersetOf({"precision/class_00", "support/class_10"}));
  expect_names_match(per_class);
}

TEST(PrecisionRecallF1Support, UndefinedRatiosAreZeroDivision) {
  for (const double zero_division : {0.0, 1.0}) {
    PrecisionRecallF1Support metric(
        {.num_classes = 3, .zero_division = zero_division, .per_class = true});
    for (const auto& [name, value] : metric.compute()) {
      EXPECT_EQ(value, name.starts_with("support") ? 0 : zero_division) << name;
    }
    // Samples of class 0 are predicted as class 1. No sample is of class 2 or predicted as it.
    metric.update(torch::tensor({1, 1}), torch::tensor({0, 0}));
    const Metrics metrics = metric.compute();
    EXPECT_EQ(metrics.at("precision/class_00"), zero_division);
    EXPECT_EQ(metrics.at("recall/class_00"), 0);
    EXPECT_EQ(metrics.at("f1/class_00"), 0);
    EXPECT_EQ(metrics.at("precision/class_01"), 0);
    EXPECT_EQ(metrics.at("recall/class_01"), zero_division);
    EXPECT_EQ(metrics.at("f1/class_02"), zero_division);
  }
}

TEST(MultilabelPrecisionRecallF1Support, IsWhatScikitLearnSays) {
  const auto& set = catalogue().at("multilabel");
  const torch::Tensor logits = matrix_of<float>(set.at("logits"));
  MultilabelPrecisionRecallF1Support metric(
      {.num_classes = 4, .threshold = set.at("threshold"), .per_class = true});
  metric.update(logits, matrix_of<std::int64_t>(set.at("targets")));
  expect_names_match(metric);
  for (const char* average : {"_micro", "_macro", "_weighted"}) {
    expect_scores(metric.compute(), average, set.at(average));
  }
  for (std::size_t c = 0; c < 4; ++c) {
    const std::string name = fmt::format("class_{:02}", c);
    expect_scores(metric.compute(), name, set.at("class")[c]);
    EXPECT_EQ(metric.compute().at("support/" + name), set.at("class")[c][3]);
  }
}

TEST(MultilabelPrecisionRecallF1Support, OneClassIsBinary) {
  const auto& set = catalogue().at("binary");
  for (const auto& at : set.at("thresholds")) {
    MultilabelPrecisionRecallF1Support metric({.num_classes = 1,
                                               .scores = ScoreKind::kProbabilities,
                                               .threshold = at.at("threshold"),
                                               .per_class = true});
    metric.update(vector_of<double>(set.at("probabilities")),
                  vector_of<std::int64_t>(set.at("targets")));
    EXPECT_THAT(metric.names(), testing::ElementsAre("precision", "recall", "f1", "support"));
    expect_names_match(metric);
    const Metrics metrics = metric.compute();
    expect_near(metrics.at("precision"), at.at("ratios")[0], "precision");
    expect_near(metrics.at("recall"), at.at("ratios")[1], "recall");
    expect_near(metrics.at("f1"), at.at("ratios")[2], "f1");
    EXPECT_EQ(metric.better("f1"), Better::kLarger);
    EXPECT_EQ(metric.better("support"), std::nullopt);
  }
}

TEST(MultilabelPrecisionRecallF1Support, MergesToTheBit) {
  const auto& set = catalogue().at("multilabel");
  const Batches batches{matrix_of<float>(set.at("logits")),
                        matrix_of<std::int64_t>(set.at("targets")), 9};
  expect_merges_exactly([] { return MultilabelPrecisionRecallF1Support({.num_classes = 4}); },
                        batches.size(), batches);
}

TEST(PrecisionRecallF1Support, MergesToTheBit) {
  for (const auto& set : golden().at("labelled")) {
    const Batches batches{matrix_of<float>(set.at("scores")),
                          vector_of<std::int64_t>(set.at("labels"))};
    const std::int64_t classes = batches.outputs.size(1);
    expect_merges_exactly(
        [&] { return PrecisionRecallF1Support({.num_classes = classes, .per_class = true}); },
        batches.size(), batches);
  }
}

TEST(PrecisionRecallF1Support, RefusesWhatDoesNotFit) {
  EXPECT_THROW(PrecisionRecallF1Support(PrecisionRecallF1SupportOptions{}), ConfigError);
  EXPECT_THROW(PrecisionRecallF1Support({.num_classes = 3, .zero_division = 0.5}), ConfigError);
  PrecisionRecallF1Support metric({.num_classes = 3});
  EXPECT_THROW(metric.update(torch::rand({2, 3}), torch::tensor({0, 3})), DataError);
  EXPECT_THAT([&] { metric.load_state(PrecisionRecallF1Support({.num_classes = 5}).state()); },
              testing::ThrowsMessage<CheckpointError>(
                  testing::HasSubstr("counts: expected Long [3, 3], found Long [5, 3]")));
}

}  // namespace
}  // namespace lockstep::metric
