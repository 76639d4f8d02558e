#include "lockstep/callback/regression.h"

#include <gtest/gtest.h>

#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

data::DatasetPtr sums(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const auto features = torch::randn({count, 4});
  return std::make_shared<data::TensorDataset>(features, features.cumsum(1).narrow(1, 1, 2) + 100);
}

TEST(RegressionCallback, IsTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history = toy::expect_same_history(
      {.train = sums(41, 1),
       .valid = sums(17, 2),
       .outputs = 2,
       .criterion = torch::nn::MSELoss(),
       .callbacks = [] {
         return Callbacks{RegressionCallback(
             {.metrics = {"mae", "mse", "rmse", "r2", "mape", "explained_variance", "pearson"},
              .num_outputs = 2,
              .per_output = true})};
       }});
  const Metrics& valid = history.at(2).at("valid");
  // The criterion is the same number, in float32.
  EXPECT_NEAR(valid.at("mse") / valid.at("loss"), 1, 1e-5);
  EXPECT_GT(valid.at("mae/output_01"), 0);
}

TEST(RegressionCallback, KnowsWhichValueIsBetter) {
  EXPECT_EQ(RegressionCallback().better("mae"), Better::kSmaller);
  EXPECT_EQ(RegressionCallback().better("r2"), Better::kLarger);
}

}  // namespace
}  // namespace lockstep
