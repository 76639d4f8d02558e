#include "lockstep/metric/batch_function.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const auto kErrors = [](const torch::Tensor& outputs, const torch::Tensor& targets) {
  return (outputs - targets).abs();
};
const auto kMeanError = [](const torch::Tensor& outputs, const torch::Tensor& targets) {
  return (outputs - targets).abs().mean();
};

TEST(BatchFunction, TakesValuesOfSamplesOrTheirMean) {
  for (const bool mean : {false, true}) {
    BatchFunctionOptions options{.name = "error", .better = Better::kSmaller};
    options.function = mean ? decltype(options.function)(kMeanError) : kErrors;
    BatchFunction metric(options);
    metric.update(torch::tensor({1.0, 2.0, 3.0}), torch::zeros({3}));
    metric.update(torch::tensor({6.0}), torch::zeros({1}));
    EXPECT_DOUBLE_EQ(metric.compute().at("error"), 3);
    EXPECT_DOUBLE_EQ(metric.compute().at("error/std"), 2);
    EXPECT_EQ(metric.better("error"), Better::kSmaller);
    EXPECT_EQ(metric.better("error/std"), std::nullopt);
    expect_names_match(metric);
  }
}

TEST(BatchFunction, MergesToTheBit) {
  torch::manual_seed(5);
  const Batches batches{torch::randn({100}), torch::randn({100}), 9};
  const auto make = [] { return BatchFunction({.name = "error", .function = kErrors}); };
  expect_merges_exactly(make, batches.size(), batches);
  expect_batches_do_not_matter(make, batches.outputs, batches.targets);
}

TEST(BatchFunction, WhatDoesNotFitIsNamed) {
  EXPECT_THROW(BatchFunction({.function = kErrors}), ConfigError);
  EXPECT_THAT([] { BatchFunction({.name = "error"}); },
              ThrowsMessage<ConfigError>(HasSubstr("'error': function: expected a function")));
  BatchFunction metric({.name = "error", .function = kErrors});
  EXPECT_THAT(
      [&] {
        metric.update(torch::rand({3, 2}), torch::rand({3, 2}));
      },
      ThrowsMessage<DataError>(HasSubstr("returned the shape [3, 2] for 3 samples")));
  BatchFunction nothing(
      {.name = "nothing", .function = [](const auto&, const auto&) { return torch::Tensor(); }});
  EXPECT_THROW(nothing.update(torch::rand({3}), torch::rand({3})), DataError);
}

}  // namespace
}  // namespace lockstep::metric
