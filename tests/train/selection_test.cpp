#include "lockstep/train/selection.h"

#include <cmath>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Selection, AMetricAndItsDirectionDecide) {
  const EpochMetrics metrics = {{"valid", {{"loss", 0.5}}}};
  const Selection loss{.key = MetricKey{"valid", "loss"}, .minimize = true};
  EXPECT_EQ(loss.score(7, metrics), 0.5);
  EXPECT_EQ(loss.score(7, {}), std::nullopt);
  EXPECT_EQ((Selection{.key = MetricKey{"valid", "auc"}}.score(7, metrics)), std::nullopt);
  EXPECT_TRUE(loss.is_better(0.4, 0.5));
  EXPECT_FALSE(loss.is_better(0.5, 0.5));
  const Selection auc{.key = MetricKey{"valid", "auc"}, .minimize = false};
  EXPECT_TRUE(auc.is_better(0.5, 0.4));
}

TEST(Selection, WithoutAMetricTheNewestEpochIsTheBest) {
  const Selection newest;
  EXPECT_EQ(newest.score(7, {}), 7.0);
  EXPECT_TRUE(newest.is_better(8, 7));
}

TEST(Selection, NotANumberIsNeverBetter) {
  const Selection loss{.key = MetricKey{"valid", "loss"}, .minimize = true};
  EXPECT_FALSE(loss.is_better(std::nan(""), 0.5));
  EXPECT_FALSE(loss.is_better(0.5, std::nan("")));
}

}  // namespace
}  // namespace lockstep
