#include "lockstep/metric/running_mean.h"

#include "lockstep/base/error.h"
#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

double value(const RunningMean& mean) {
  return mean.compute().at("running_loss");
}

TEST(RunningMean, IsOfTheLastBatches) {
  RunningMean mean({.name = "running_loss", .window = 2});
  EXPECT_TRUE(std::isnan(value(mean)));
  mean.update(1, {.value = 4});
  EXPECT_EQ(value(mean), 4);
  mean.update(2, {.value = 1, .weight = 3});
  mean.update(2, {.value = 6, .weight = 1});
  EXPECT_EQ(value(mean), (4 + 3 + 6) / 5.0);
  mean.update(3, {.value = 2, .weight = 5});
  EXPECT_EQ(value(mean), (3 + 6 + 10) / 9.0);
  mean.update(4, {.value = 100, .weight = 0});  // nothing counts
  EXPECT_EQ(value(mean), (3 + 6 + 10) / 9.0);
  mean.update(7, {.value = 1});  // batches without a value count
  EXPECT_EQ(value(mean), 1);
  expect_names_match(mean);
  mean.reset();
  EXPECT_TRUE(std::isnan(value(mean)));
}

TEST(RunningMean, MergesToTheBit) {
  const auto update = [](RunningMean& mean, int i) {
    mean.update(i / 3, {.value = 0.1 * i, .weight = 1.0 + i % 5});
  };
  expect_merges_exactly([] { return RunningMean({.name = "running_loss", .window = 4}); }, 40,
                        update);
}

TEST(RunningMean, RefusesWhatDoesNotFit) {
  EXPECT_THROW(RunningMean(RunningMeanOptions{}), ConfigError);
  EXPECT_THROW(RunningMean({.name = "a", .window = 0}), ConfigError);
  RunningMean mean({.name = "a"});
  EXPECT_THROW(mean.update(1, {.value = 1, .weight = -1}), DataError);
  EXPECT_THROW(mean.load_state({{"batches", torch::zeros({2})}}), CheckpointError);
}

}  // namespace
}  // namespace lockstep::metric
