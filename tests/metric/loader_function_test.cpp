#include "lockstep/metric/loader_function.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

// Depends on the order of the samples in every bit.
double fold(const torch::Tensor& outputs, const torch::Tensor& targets) {
  double sum = 0;
  for (std::int64_t i = 0; i < outputs.size(0); ++i) {
    sum = 0.9 * sum + outputs[i].item<double>() * targets[i].item<double>();
  }
  return sum;
}

LoaderFunction folded() {
  return LoaderFunction({.name = "fold", .function = fold, .better = Better::kLarger});
}

TEST(LoaderFunction, GetsTheWholeLoader) {
  LoaderFunction metric = folded();
  const torch::Tensor outputs = torch::randn({10}), targets = torch::randn({10});
  metric.update(outputs.slice(0, 0, 4), targets.slice(0, 0, 4));
  metric.update(outputs.slice(0, 4, 10), targets.slice(0, 4, 10));
  EXPECT_EQ(metric.compute().at("fold"), fold(outputs, targets));
  EXPECT_EQ(metric.better("fold"), Better::kLarger);
  expect_names_match(metric);
  metric.reset();
  EXPECT_TRUE(std::isnan(metric.compute().at("fold")));
}

// A loader may use the memory of a batch again.
TEST(LoaderFunction, KeepsCopies) {
  LoaderFunction metric = folded();
  torch::Tensor outputs = torch::ones({1}), targets = torch::ones({1});
  metric.update(outputs, targets);
  outputs.zero_();
  EXPECT_EQ(metric.compute().at("fold"), 1);
}

// Shards are given out to ranks in any way, and come back in their order.
TEST(LoaderFunction, MergesToTheBit) {
  torch::manual_seed(6);
  const torch::Tensor outputs = torch::randn({60}), targets = torch::randn({60});
  const auto update = [&](LoaderFunction& metric, int i) {
    metric.begin({.batch = i / 3, .shard = i % 3});
    metric.update(outputs.slice(0, 5 * i, 5 * i + 5), targets.slice(0, 5 * i, 5 * i + 5));
  };
  expect_merges_exactly(folded, 12, update);
}

TEST(LoaderFunction, GoesOnAfterACheckpointWithoutPlaces) {
  const torch::Tensor outputs = torch::randn({6}), targets = torch::randn({6});
  LoaderFunction before = folded(), after = folded();
  before.update(outputs.slice(0, 0, 2), targets.slice(0, 0, 2));
  before.update(outputs.slice(0, 2, 4), targets.slice(0, 2, 4));
  after.load_state(before.state());
  after.update(outputs.slice(0, 4, 6), targets.slice(0, 4, 6));
  EXPECT_EQ(after.compute().at("fold"), fold(outputs, targets));
}

TEST(LoaderFunction, RefusesWhatDoesNotFit) {
  EXPECT_THROW(LoaderFunction({.function = fold}), ConfigError);
  EXPECT_THROW(LoaderFunction({.name = "fold"}), ConfigError);
  LoaderFunction metric = folded();
  EXPECT_THROW(metric.update(torch::rand({3}), torch::rand({2})), DataError);
  EXPECT_THROW(metric.load_state({{"parts", StateList{1}}, {"next", 0}}), CheckpointError);
}

}  // namespace
}  // namespace lockstep::metric
