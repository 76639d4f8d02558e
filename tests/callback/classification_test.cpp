#include "lockstep/callback/classification.h"

#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

// A loader's metric is that of all its samples at once, however they are split into batches.
TEST(MetricCallbacks, AreOfTheWholeLoader) {
  const Model model(toy::model());
  const auto dataset = toy::points(101);
  const auto evaluate = [&](std::int64_t batch_size) {
    return SupervisedRunner().evaluate_loader(
        {.loader = {dataset, {.batch_size = batch_size}},
         .model = model,
         .callbacks = {AccuracyCallback({.num_classes = 3}),
                       PrecisionRecallF1SupportCallback({.num_classes = 3, .per_class = true}),
                       AUCCallback({.num_classes = 3})}});
  };
  const Metrics whole = evaluate(101), parts = evaluate(8);
  for (const char* name : {"accuracy01", "precision/_macro", "f1/_weighted", "support/class_01",
                           "auc", "auc/_micro"}) {
    EXPECT_NEAR(whole.at(name), parts.at(name), 1e-6) << name;
  }

  torch::NoGradGuard no_grad;
  model.train(false);
  std::vector<std::int64_t> all(101);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = dataset->gather(all, {});
  const double right = model(batch["features"])
                           .argmax(1)
                           .eq(batch["targets"])
                           .to(torch::kDouble)
                           .mean()
                           .item<double>();
  EXPECT_DOUBLE_EQ(whole.at("accuracy01"), right);
}

TEST(MetricCallbacks, StartAnewForEveryLoaderAndEpoch) {
  TrainOptions options = toy::options();
  options.callbacks = {PrecisionRecallF1SupportCallback({.num_classes = 3, .per_class = true})};
  const auto result = toy::train(options);
  for (const auto& [epoch, metrics] : result.history) {
    double train = 0, valid = 0;
    for (const char* name : {"support/class_00", "support/class_01", "support/class_02"}) {
      train += metrics.at("train").at(name);
      valid += metrics.at("valid").at(name);
    }
    EXPECT_EQ(train, 50) << "epoch " << epoch;
    EXPECT_EQ(valid, 30) << "epoch " << epoch;
  }
}

TEST(MetricCallbacks, PrefixAndSuffixNameThem) {
  const Metrics metrics = SupervisedRunner().evaluate_loader(
      {.loader = {toy::points(10), {.batch_size = 5}},
       .model = toy::model(),
       .callbacks = {AccuracyCallback({.topk = {1, 2}, .prefix = "my_", .suffix = "_x"})}});
  EXPECT_EQ(metrics.count("my_accuracy01_x"), 1u);
  EXPECT_EQ(metrics.at("my_accuracy02_x") >= metrics.at("my_accuracy01_x"), true);
}

TEST(AccuracyCallback, ShowsTheAccuracySoFar) {
  std::vector<double> seen;
  auto hooks = std::make_shared<toy::Hooks>();
  hooks->batch_end = [&](State& s) { seen.push_back(s.running_metrics().at("accuracy01")); };
  const Metrics metrics = SupervisedRunner().evaluate_loader(
      {.loader = {toy::points(20), {.batch_size = 5}},
       .model = toy::model(),
       .callbacks = {AccuracyCallback({.num_classes = 3}), hooks}});
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen.back(), metrics.at("accuracy01"));
}

}  // namespace
}  // namespace lockstep
