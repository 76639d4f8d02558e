#include "lockstep/loss/over.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(LossOver, IsTheSameIfKindAndWeightAre) {
  EXPECT_EQ(mean_over_samples(), LossOver());
  EXPECT_EQ(mean_over(3), mean_over(3));
  EXPECT_FALSE(mean_over(3) == mean_over(4));
  EXPECT_FALSE(mean_over_samples() == sum_over_samples());
}

TEST(StatedLoss, IsAMeanOverSamplesByDefault) {
  const StatedLoss loss{};
  EXPECT_EQ(loss.over({}, {}), mean_over_samples());
  EXPECT_FALSE(loss.mixes_samples());
}

}  // namespace
}  // namespace lockstep
