#include "lockstep/callback/check_run.h"

#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

TEST(CheckRun, IsThreeEpochsOfThreeBatches) {
  std::map<std::string, int> batches;
  auto count = std::make_shared<toy::Hooks>();
  count->batch_end = [&](State& s) { ++batches[s.loader]; };
  TrainOptions options = toy::options();
  options.num_epochs = 100;
  options.check = true;
  options.loaders.set("valid", {toy::points(40), {.batch_size = 5}});
  options.callbacks = {count};
  const auto result = toy::train(options);
  EXPECT_EQ(result.history.size(), 3u);
  EXPECT_EQ(batches["train"], 9);
  EXPECT_EQ(batches["valid"], 9);
  EXPECT_TRUE(result.stop_reason);
}

TEST(CheckRun, RefusesNothingAtAll) {
  EXPECT_THROW(CheckRunCallback({.num_batches = 0}), ConfigError);
}

}  // namespace
}  // namespace lockstep
