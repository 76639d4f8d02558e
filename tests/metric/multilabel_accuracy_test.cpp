#include "lockstep/metric/multilabel_accuracy.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

Metrics accuracy_of(MultilabelAccuracyOptions options, const torch::Tensor& outputs,
                    const torch::Tensor& targets) {
  MultilabelAccuracy metric(std::move(options));
  metric.update(outputs, targets);
  expect_names_match(metric);
  return metric.compute();
}

TEST(MultilabelAccuracy, IsWhatScikitLearnSays) {
  const auto& set = catalogue().at("multilabel");
  const torch::Tensor logits = matrix_of<float>(set.at("logits"));
  const torch::Tensor targets = matrix_of<std::int64_t>(set.at("targets"));
  MultilabelAccuracyOptions options{.num_classes = 4, .threshold = set.at("threshold")};
  Metrics metrics = accuracy_of(options, logits, targets);
  expect_near(metrics.at("accuracy"), set.at("accuracy"), "accuracy");
  expect_near(metrics.at("exact_match"), set.at("exact_match"), "exact match");
  options.scores = ScoreKind::kProbabilities;
  metrics = accuracy_of(options, logits.to(torch::kFloat64).sigmoid(), targets.to(torch::kFloat32));
  expect_near(metrics.at("accuracy"), set.at("accuracy"), "accuracy");
}

TEST(MultilabelAccuracy, OneLogitIsBinary) {
  const auto& set = catalogue().at("binary");
  const torch::Tensor logits = vector_of<float>(set.at("logits"));
  const torch::Tensor targets = vector_of<std::int64_t>(set.at("targets"));
  for (const auto& at : set.at("thresholds")) {
    const MultilabelAccuracyOptions options{.num_classes = 1, .threshold = at.at("threshold")};
    for (const torch::Tensor& outputs : {logits, logits.unsqueeze(1)}) {
      const Metrics metrics = accuracy_of(options, outputs, targets);
      expect_near(metrics.at("accuracy"), at.at("accuracy"), "accuracy");
      EXPECT_EQ(metrics.count("exact_match"), 0u);
    }
  }
}

TEST(MultilabelAccuracy, AThresholdMustBeExceeded) {
  EXPECT_EQ(
      accuracy_of({.num_classes = 1}, torch::tensor({0.0}), torch::tensor({0})).at("accuracy"), 1);
  EXPECT_EQ(
      accuracy_of({.num_classes = 1}, torch::tensor({1e-30}), torch::tensor({0})).at("accuracy"),
      0);
}

TEST(MultilabelAccuracy, MergesToTheBit) {
  const auto& set = catalogue().at("multilabel");
  const Batches batches{matrix_of<float>(set.at("logits")),
                        matrix_of<std::int64_t>(set.at("targets")), 7};
  const auto make = [] { return MultilabelAccuracy({.num_classes = 4}); };
  expect_merges_exactly(make, batches.size(), batches);
  expect_batches_do_not_matter(make, batches.outputs, batches.targets);
}

TEST(MultilabelAccuracy, RefusesWhatDoesNotFit) {
  EXPECT_THROW(MultilabelAccuracy(MultilabelAccuracyOptions{}), ConfigError);
  EXPECT_THROW(MultilabelAccuracy({.num_classes = 2, .threshold = -1}), ConfigError);
  MultilabelAccuracy metric({.num_classes = 2});
  EXPECT_THROW(metric.update(torch::rand({3, 4}), torch::zeros({3, 4})), DataError);
  metric.update(torch::rand({0, 2}), torch::zeros({0, 2}));
  EXPECT_TRUE(std::isnan(metric.compute().at("accuracy")));
  EXPECT_EQ(metric.better("exact_match"), Better::kLarger);
}

}  // namespace
}  // namespace lockstep::metric
