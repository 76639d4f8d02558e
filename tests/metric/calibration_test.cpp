#include "lockstep/metric/calibration.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

// torchmetrics has float32 inside.
constexpr double kTolerance = 1e-6;

TEST(CalibrationError, IsWhatTorchmetricsSays) {
  for (const char* const name : {"classes", "binary"}) {
    const auto& set = catalogue().at(name);
    const auto targets =
        vector_of<std::int64_t>(set.at(std::string(name) == "classes" ? "labels" : "targets"));
    for (const std::int64_t bins : {10, 15}) {
      for (const ScoreKind kind : {ScoreKind::kLogits, ScoreKind::kProbabilities}) {
        CalibrationError metric({.bins = bins, .scores = kind});
        metric.update(kind == ScoreKind::kLogits ? tensor_of_lists<float>(set.at("logits"))
                                                 : tensor_of_lists<double>(set.at("probabilities")),
                      targets);
        const Metrics metrics = metric.compute();
        EXPECT_NEAR(metrics.at("ece"), set.at(fmt::format("ece{}", bins)), kTolerance) << name;
        EXPECT_NEAR(metrics.at("mce"), set.at(fmt::format("mce{}", bins)), kTolerance) << name;
      }
    }
  }
}

TEST(CalibrationError, ByHand) {
  CalibrationError metric({.bins = 2, .scores = ScoreKind::kProbabilities});
  // Upper bin: 0.5, 1.0 and 0.75, of which two are right. Lower bin: 0.25, right.
  metric.update(torch::tensor({0.5, 1.0, 0.75, 0.25}), torch::tensor({1, 1, 0, 1}));
  EXPECT_DOUBLE_EQ(metric.compute().at("ece"), (0.25 + 0.75) / 4);
  EXPECT_DOUBLE_EQ(metric.compute().at("mce"), 0.75);
  expect_names_match(metric);
  EXPECT_EQ(metric.better("ece"), Better::kSmaller);
}

TEST(CalibrationError, MergesToTheBit) {
  const auto& set = catalogue().at("classes");
  const Batches batches{matrix_of<float>(set.at("logits")),
                        vector_of<std::int64_t>(set.at("labels")), 8};
  expect_merges_exactly([] { return CalibrationError(); }, batches.size(), batches);
  expect_batches_do_not_matter([] { return CalibrationError(); }, batches.outputs, batches.targets);
}

TEST(CalibrationError, RefusesWhatDoesNotFit) {
  EXPECT_THROW(CalibrationError({.bins = 0}), ConfigError);
  CalibrationError metric;
  EXPECT_TRUE(std::isnan(metric.compute().at("ece")));
  EXPECT_THROW(metric.load_state(CalibrationError({.bins = 3}).state()), CheckpointError);
}

}  // namespace
}  // namespace lockstep::metric
