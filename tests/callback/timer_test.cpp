#include "lockstep/callback/timer.h"

#include <gtest/gtest.h>

#include "tests/support/toy.h"

namespace lockstep {
namespace {

TEST(TimerCallback, TellsDataFromModel) {
  const auto busy = [](State&) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(4);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  auto slow = std::make_shared<toy::Hooks>();
  slow->forward = busy;
  TrainOptions options = toy::options();
  options.num_epochs = 1;
  options.timeit = true;
  options.callbacks = {slow};
  const auto metrics = toy::train(options).last_metrics.at("train");
  EXPECT_GE(metrics.at("_timer/model_time"), 0.004);
  EXPECT_LT(metrics.at("_timer/data_time"), metrics.at("_timer/model_time"));
  EXPECT_NEAR(metrics.at("_timer/batch_time"),
              metrics.at("_timer/data_time") + metrics.at("_timer/model_time"), 1e-9);
  EXPECT_LE(metrics.at("_timer/_fps"), 8 / 0.004);
}

}  // namespace
}  // namespace lockstep
