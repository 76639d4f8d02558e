#include "lockstep/log/histogram.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::Pointwise;

// Numbers of make_histogram() of tensorboardX 2.6, which is that of torch.utils.tensorboard, with
// the bins of SummaryWriter.
TEST(Histogram, HasTheBucketsOfTensorBoard) {
  const std::vector<double> values = {-1.5, -0.2, 0.0, 0.0, 0.3, 1.0, 1.01, 2.5};
  const auto histogram = make_histogram(std::span<const double>(values));
  ASSERT_TRUE(histogram);
  EXPECT_EQ(histogram->min, -1.5);
  EXPECT_EQ(histogram->max, 2.5);
  EXPECT_EQ(histogram->num, 8);
  EXPECT_NEAR(histogram->sum, 3.11, 1e-12);
  EXPECT_NEAR(histogram->sum_squares, 10.6501, 1e-12);
  ASSERT_EQ(histogram->buckets.size(), histogram->bucket_limits.size());
  EXPECT_EQ(histogram->buckets.size(), 598U);
  EXPECT_EQ(histogram->buckets.front(), 0);
  EXPECT_NEAR(histogram->bucket_limits.front(), -1.624957930213695, 1e-12);
  EXPECT_NEAR(histogram->bucket_limits.back(), 2.6170109961884593, 1e-12);
  std::vector<double> used;
  for (std::size_t i = 0; i < histogram->buckets.size(); ++i) {
    if (histogram->buckets[i] > 0) used.push_back(histogram->bucket_limits[i]);
  }
  EXPECT_THAT(used, Pointwise(testing::DoubleEq(),
                              std::vector{-1.47723448201245, -0.19961953895336082, 1e-12,
                                          0.3214892636797772, 1.0089710279437536, 1.109868130738129,
                                          2.6170109961884593}));
}

TEST(Histogram, FloatsAndDoublesAreAlike) {
  const std::vector<float> floats = {0.25F, -3.0F, 8.0F};
  const std::vector<double> doubles = {0.25, -3.0, 8.0};
  EXPECT_EQ(make_histogram(std::span<const float>(floats)),
            make_histogram(std::span<const double>(doubles)));
}

TEST(Histogram, OfOneValueHasOneBucketAndTheOneBeforeIt) {
  const std::vector<double> zero = {0.0};
  const auto histogram = make_histogram(std::span<const double>(zero));
  ASSERT_TRUE(histogram);
  EXPECT_THAT(histogram->buckets, ElementsAre(0, 1));
  EXPECT_THAT(histogram->bucket_limits, ElementsAre(0, 1e-12));
}

TEST(Histogram, LeavesOutWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values = {std::nan(""), 1.0, infinity, -infinity};
  const auto histogram = make_histogram(std::span<const double>(values));
  ASSERT_TRUE(histogram);
  EXPECT_EQ(histogram->num, 1);
  EXPECT_EQ(histogram->max, 1);
  EXPECT_FALSE(make_histogram(std::span<const double>(values).first(1)));
  EXPECT_FALSE(make_histogram(std::span<const double>()));
}

}  // namespace
}  // namespace lockstep
