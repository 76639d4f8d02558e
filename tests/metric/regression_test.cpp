#include "lockstep/metric/regression.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<std::string> kAll = {"mae",    "mse", "rmse", "r2", "mape", "explained_variance",
                                       "pearson"};

Metrics regression_of(RegressionOptions options, const torch::Tensor& outputs,
                      const torch::Tensor& targets) {
  Regression metric(std::move(options));
  metric.update(outputs, targets);
  expect_names_match(metric);
  return metric.compute();
}

torch::Tensor numbers_of(const nlohmann::json& lists, bool is_double) {
  return is_double ? tensor_of_lists<double>(lists) : tensor_of_lists<float>(lists);
}

// Relative, because some numbers are large.
void expect_close(double value, double expected, const std::string& what) {
  EXPECT_NEAR(value, expected, 1e-12 * std::max(1.0, std::abs(expected))) << what;
}

void expect_columns(const Metrics& metrics, const nlohmann::json& columns) {
  for (const std::string& name : kAll) {
    double sum = 0;
    const auto& expected = columns.at(name);
    for (std::size_t o = 0; o < expected.size(); ++o) {
      expect_close(metrics.at(fmt::format("{}/output_{:02}", name, o)), expected[o], name);
      sum += expected[o].get<double>();
    }
    expect_close(metrics.at(name), sum / static_cast<double>(expected.size()), name);
  }
}

TEST(Regression, IsWhatScikitLearnSays) {
  for (const auto& set : catalogue().at("numbers")) {
    SCOPED_TRACE(set.at("name").get<std::string>());
    const auto outputs = numbers_of(set.at("outputs"), set.at("double"));
    const auto targets = numbers_of(set.at("targets"), set.at("double"));
    const std::int64_t columns = outputs.dim() == 2 ? outputs.size(1) : 1;
    expect_columns(regression_of({.metrics = kAll, .num_outputs = columns, .per_output = true},
                                 outputs, targets),
                   set.at("columns"));
  }
}

TEST(Regression, SamplesMayBeFields) {
  const auto& set = catalogue().at("fields");
  const auto outputs = tensor_of_lists<float>(set.at("outputs"));
  const auto targets = tensor_of_lists<float>(set.at("targets"));
  expect_columns(
      regression_of({.metrics = kAll, .num_outputs = 2, .per_output = true}, outputs, targets),
      set.at("columns"));
  expect_columns(regression_of({.metrics = kAll, .per_output = true}, outputs, targets),
                 set.at("all"));
}

TEST(Regression, OneNumberPerSampleMayBeAColumn) {
  const torch::Tensor outputs = torch::tensor({1.0, 2.0, 4.0}),
                      targets = torch::tensor({1.0, 2.0, 3.0});
  for (const torch::Tensor& shaped : {outputs, outputs.unsqueeze(1)}) {
    EXPECT_DOUBLE_EQ(regression_of({}, shaped, targets).at("mae"), 1.0 / 3);
    EXPECT_DOUBLE_EQ(regression_of({}, shaped, targets.unsqueeze(1)).at("r2"), 0.5);
  }
}

// As in scikit-learn; SciPy warns and returns NaN.
TEST(Regression, EqualTargetsHaveNoVariation) {
  const torch::Tensor targets = torch::full({5}, 0.1, torch::kFloat64);
  Metrics metrics = regression_of({.metrics = kAll}, targets, targets);
  EXPECT_EQ(metrics.at("r2"), 1);
  EXPECT_EQ(metrics.at("explained_variance"), 1);
  EXPECT_TRUE(std::isnan(metrics.at("pearson")));
  metrics = regression_of({.metrics = kAll}, targets + torch::arange(5), targets);
  EXPECT_EQ(metrics.at("r2"), 0);
  EXPECT_EQ(metrics.at("explained_variance"), 0);
}

TEST(Regression, NothingIsNotANumber) {
  const torch::Tensor none = torch::empty({0}), one = torch::ones({1});
  for (const auto& [name, value] : regression_of({.metrics = kAll}, none, none)) {
    EXPECT_TRUE(std::isnan(value)) << name;
  }
  EXPECT_TRUE(std::isnan(regression_of({}, one, one).at("r2")));
  EXPECT_EQ(regression_of({}, one, one).at("mse"), 0);
  for (const auto& [name, value] : regression_of({.metrics = {"mse", "r2", "pearson"}},
                                                 torch::full({3}, HUGE_VAL), torch::arange(3.0))) {
    EXPECT_TRUE(std::isnan(value)) << name;
  }
}

TEST(Regression, MergesToTheBit) {
  for (const auto& set : catalogue().at("numbers")) {
    const Batches batches{numbers_of(set.at("outputs"), set.at("double")),
                          numbers_of(set.at("targets"), set.at("double")), 7};
    const auto make = [] { return Regression({.metrics = kAll}); };
    expect_merges_exactly(make, batches.size(), batches);
    expect_batches_do_not_matter(make, batches.outputs, batches.targets);
  }
  const auto& fields = catalogue().at("fields");
  const auto make = [] { return Regression({.metrics = kAll, .num_outputs = 2}); };
  const Batches batches{tensor_of_lists<float>(fields.at("outputs")),
                        tensor_of_lists<float>(fields.at("targets")), 1};
  expect_merges_exactly(make, batches.size(), batches);
  expect_batches_do_not_matter(make, batches.outputs, batches.targets);
}

TEST(Regression, KnowsWhichValueIsBetter) {
  const Regression metric({.metrics = kAll, .num_outputs = 2, .per_output = true, .prefix = "a_"});
  EXPECT_EQ(metric.better("a_mae"), Better::kSmaller);
  EXPECT_EQ(metric.better("a_rmse/output_01"), Better::kSmaller);
  EXPECT_EQ(metric.better("a_r2"), Better::kLarger);
  EXPECT_EQ(metric.better("a_pearson/output_00"), Better::kLarger);
  EXPECT_EQ(metric.better("mae"), std::nullopt);
}

TEST(Regression, WhatDoesNotFitIsNamed) {
  EXPECT_THAT([] { Regression({.metrics = {"rms"}}); },
              ThrowsMessage<ConfigError>(HasSubstr("there is no 'rms'; did you mean 'rmse'?")));
  EXPECT_THROW(Regression({.metrics = {}}), ConfigError);
  EXPECT_THROW(Regression({.metrics = {"mae", "mae"}}), ConfigError);
  EXPECT_THROW(Regression({.num_outputs = 0}), ConfigError);
  Regression metric({.num_outputs = 2});
  EXPECT_THAT(
      [&] {
        metric.update(torch::rand({3, 2}), torch::rand({3}));
      },
      ThrowsMessage<DataError>(HasSubstr("expected the same shape")));
  EXPECT_THAT(
      [&] {
        metric.update(torch::rand({3, 4}), torch::rand({3, 4}));
      },
      ThrowsMessage<DataError>(HasSubstr("[samples, num_outputs = 2, …], got [3, 4]")));
  EXPECT_THROW(metric.load_state(Regression().state()), CheckpointError);
}

}  // namespace
}  // namespace lockstep::metric
