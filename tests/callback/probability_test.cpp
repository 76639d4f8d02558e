#include "lockstep/callback/probability.h"

#include <gtest/gtest.h>

#include "tests/callback/metric_runs.h"

namespace lockstep {
namespace {

TEST(ProbabilityCallbacks, AreTheSameForAnyNumberOfWorkersAndAfterAResume) {
  const auto history = toy::expect_same_history(
      {.train = toy::points(41), .valid = toy::points(17, 2), .callbacks = [] {
         return Callbacks{LogLossCallback(), CalibrationErrorCallback({.bins = 5})};
       }});
  const Metrics& valid = history.at(2).at("valid");
  // The criterion is the same loss, in float32.
  EXPECT_NEAR(valid.at("log_loss"), valid.at("loss"), 1e-6);
  EXPECT_GE(valid.at("mce"), valid.at("ece"));
}

TEST(ProbabilityCallbacks, SmallerIsBetter) {
  EXPECT_EQ(LogLossCallback({.suffix = "_b"}).better("log_loss_b"), Better::kSmaller);
  EXPECT_EQ(CalibrationErrorCallback().better("ece"), Better::kSmaller);
}

// A run compares the options of its ranks.
TEST(ProbabilityCallbacks, TellTheirOptions) {
  EXPECT_NE(CalibrationErrorCallback().agreed_options(),
            CalibrationErrorCallback({.bins = 10}).agreed_options());
  EXPECT_NE(LogLossCallback().agreed_options(),
            LogLossCallback({.scores = metric::ScoreKind::kProbabilities}).agreed_options());
}

}  // namespace
}  // namespace lockstep
