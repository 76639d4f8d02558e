#include "lockstep/callback/default_metric.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/callback/multilabel.h"
#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

const auto kDefault = [] { return Callbacks{DefaultMetricCallback()}; };

data::DatasetPtr above_zero(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto features = torch::randn({count, 4});
  return std::make_shared<data::TensorDataset>(features,
                                               features.narrow(1, 0, 3).gt(0).to(torch::kFloat32));
}

TEST(DefaultMetricCallback, FollowsFromTheCriterion) {
  const auto classes = toy::expect_same_history(
      {.train = toy::points(41), .valid = toy::points(17, 2), .callbacks = kDefault});
  EXPECT_EQ(classes.at(2).at("valid").count("accuracy01"), 1u);
  const auto labels = toy::expect_same_history(
      {.train = above_zero(41, 1),
       .valid = above_zero(17, 2),
       .criterion = torch::nn::BCEWithLogitsLoss(),
       .callbacks = [] {
         return Callbacks{DefaultMetricCallback(),
                          MultilabelAccuracyCallback({.num_classes = 3, .prefix = "same_"})};
       }});
  const Metrics& valid = labels.at(2).at("valid");
  EXPECT_DOUBLE_EQ(valid.at("accuracy"), valid.at("same_accuracy"));
  const auto numbers = toy::expect_same_history({.train = above_zero(41, 1),
                                                 .valid = above_zero(17, 2),
                                                 .criterion = torch::nn::L1Loss(),
                                                 .callbacks = kDefault});
  EXPECT_NEAR(numbers.at(2).at("train").at("mae"), numbers.at(2).at("train").at("loss"), 1e-6);
}

TEST(DefaultMetricCallback, KnowsWhichValueIsBetter) {
  TrainOptions options = toy::options();
  options.callbacks = kDefault();
  options.valid_metric = "accuracy01";
  const auto result = toy::train(options);
  EXPECT_GE(result.best_metric, result.history.at(1).at("valid").at("accuracy01"));
  EXPECT_EQ(DefaultMetricCallback().better("mse"), Better::kSmaller);
  EXPECT_EQ(DefaultMetricCallback().better("accuracy"), Better::kLarger);
}

TEST(DefaultMetricCallback, RefusesCriterionsWithoutOne) {
  TrainOptions options = toy::options();
  options.callbacks = kDefault();
  options.criterion = [](const torch::Tensor& outputs, const torch::Tensor&) {
    return outputs.square().mean();
  };
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }),
              HasSubstr("no usual metric for the criterion 'a function'"));
}

}  // namespace
}  // namespace lockstep
