#include "lockstep/callback/function_metric.h"

#include <gtest/gtest.h>

#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

// Depends on the order of the samples in every bit.
double smoothed(const torch::Tensor& outputs, const torch::Tensor& targets) {
  double mean = 0;
  for (std::int64_t i = 0; i < outputs.size(0); ++i) {
    mean = 0.9 * mean + 0.1 * outputs[i][targets[i].item<std::int64_t>()].item<double>();
  }
  return mean;
}

TEST(FunctionMetrics, AreTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history = toy::expect_same_history(
      {.train = toy::points(41), .valid = toy::points(17, 2), .callbacks = [] {
         return Callbacks{BatchFunctionCallback(
                              {.name = "right",
                               .function =
                                   [](const torch::Tensor& outputs, const torch::Tensor& targets) {
                                     return outputs.argmax(1).eq(targets);
                                   },
                               .better = Better::kLarger}),
                          AccuracyCallback(),
                          LoaderFunctionCallback({.name = "smoothed", .function = smoothed})};
       }});
  for (const char* const loader : {"train", "valid"}) {
    const Metrics& metrics = history.at(2).at(loader);
    EXPECT_EQ(metrics.at("right"), metrics.at("accuracy01"));
    EXPECT_EQ(metrics.at("right/std"), metrics.at("accuracy01/std"));
    EXPECT_NE(metrics.at("smoothed"), 0);
  }
}

TEST(FunctionMetrics, GetTheSamplesInTheOrderOfTheLoader) {
  auto model = toy::model();
  const auto points = toy::points(23);
  const Metrics metrics = SupervisedRunner().evaluate_loader(
      {.loader = {points, {.batch_size = 4}},
       .model = model,
       .callbacks = {LoaderFunctionCallback({.name = "smoothed", .function = smoothed})}});
  torch::NoGradGuard no_grad;
  model->eval();
  std::vector<std::int64_t> all(23);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = points->gather(all, {});
  EXPECT_NEAR(metrics.at("smoothed"), smoothed(model->forward(batch["features"]), batch["targets"]),
              1e-6);
}

TEST(FunctionMetrics, AreCalledForBatchesOnly) {
  int calls = 0;
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.callbacks = {BatchFunctionCallback(
      {.name = "calls", .function = [&](const torch::Tensor& outputs, const torch::Tensor&) {
         ++calls;
         return outputs.mean();
       }})};
  toy::train(options);
  EXPECT_EQ(calls, 7 + 3);  // batches of train and valid
  options.callbacks = {BatchFunctionCallback(
      {.input_key = "absent", .name = "calls", .function = [](const auto& outputs, const auto&) {
         return outputs.mean();
       }})};
  EXPECT_THAT(toy::error_of([&] { toy::train(options); }), testing::HasSubstr("absent"));
}

TEST(FunctionMetrics, SayWhichValueIsBetterIfTheyAreTold) {
  const auto zero = [](const torch::Tensor&, const torch::Tensor&) { return 0.0; };
  EXPECT_EQ(LoaderFunctionCallback({.name = "a", .function = zero, .better = Better::kSmaller})
                .better("a"),
            Better::kSmaller);
  EXPECT_EQ(LoaderFunctionCallback({.name = "a", .function = zero}).better("a"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
