#include "lockstep/callback/multilabel.h"

#include <gtest/gtest.h>

#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

data::DatasetPtr labels(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto features = torch::randn({count, 4});
  return std::make_shared<data::TensorDataset>(features,
                                               features.narrow(1, 0, 3).gt(0).to(torch::kFloat32));
}

data::DatasetPtr signs(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto features = torch::randn({count, 4});
  return std::make_shared<data::TensorDataset>(
      features, features.sum(1, /*keepdim=*/true).gt(0).to(torch::kFloat32));
}

TEST(MultilabelCallbacks, AreTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history = toy::expect_same_history(
      {.train = labels(41, 1),
       .valid = labels(17, 2),
       .criterion = torch::nn::BCEWithLogitsLoss(),
       .callbacks = [] {
         return Callbacks{
             MultilabelAccuracyCallback({.num_classes = 3}),
             MultilabelPrecisionRecallF1SupportCallback({.num_classes = 3, .per_class = true})};
       }});
  const Metrics& valid = history.at(2).at("valid");
  EXPECT_GT(valid.at("accuracy"), valid.at("exact_match"));
  EXPECT_LE(valid.at("support/class_00"), 17);
}

TEST(BinaryCallbacks, AreTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history = toy::expect_same_history(
      {.train = signs(41, 1),
       .valid = signs(17, 2),
       .outputs = 1,
       .criterion = torch::nn::BCEWithLogitsLoss(),
       .callbacks = [] {
         return Callbacks{BinaryAccuracyCallback(), BinaryPrecisionRecallF1SupportCallback(
                                                        {.threshold = 0.3, .prefix = "low_"})};
       }});
  EXPECT_EQ(history.at(2).at("train").count("low_recall"), 1u);
}

// The best epoch can be chosen by them without saying which direction is better.
TEST(MultilabelCallbacks, KnowWhichValueIsBetter) {
  EXPECT_EQ(BinaryAccuracyCallback().better("accuracy"), Better::kLarger);
  EXPECT_EQ(MultilabelAccuracyCallback({.num_classes = 2}).better("exact_match"), Better::kLarger);
  EXPECT_EQ(MultilabelPrecisionRecallF1SupportCallback({.num_classes = 2}).better("f1/_macro"),
            Better::kLarger);
}

// A run compares the options of its ranks.
TEST(MultilabelCallbacks, TellTheirOptions) {
  const std::string plain = BinaryAccuracyCallback().agreed_options();
  EXPECT_NE(BinaryAccuracyCallback({.threshold = 0.4}).agreed_options(), plain);
  EXPECT_NE(BinaryAccuracyCallback({.scores = metric::ScoreKind::kProbabilities}).agreed_options(),
            plain);
  EXPECT_NE(MultilabelAccuracyCallback({.num_classes = 2}).agreed_options(),
            MultilabelAccuracyCallback({.num_classes = 3}).agreed_options());
  EXPECT_NE(BinaryPrecisionRecallF1SupportCallback().agreed_options(),
            BinaryPrecisionRecallF1SupportCallback({.zero_division = 1}).agreed_options());
}

TEST(BinaryAccuracyCallback, ShowsTheAccuracySoFar) {
  double seen = 0;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [&](State& s) { seen = s.running_metrics().at("accuracy"); };
  const Metrics metrics =
      SupervisedRunner().evaluate_loader({.loader = {signs(20, 3), {.batch_size = 5}},
                                          .model = torch::nn::Sequential(torch::nn::Linear(4, 1)),
                                          .callbacks = {BinaryAccuracyCallback(), hooks}});
  EXPECT_EQ(seen, metrics.at("accuracy"));
}

}  // namespace
}  // namespace lockstep
