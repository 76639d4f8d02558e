#include "lockstep/metric/joint_moments.h"

#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

// Whether the numbers come one by one or as a large sample makes no difference in the digits that a
// double has, also far from zero, where sums of squares in doubles have no digit left.
TEST(JointMoments, OfALargeSampleAreThoseOfItsNumbers) {
  torch::manual_seed(1);
  for (const double mean : {0.0, 1e6}) {
    const torch::Tensor y = mean + torch::randn({1003}, torch::kFloat64);
    const torch::Tensor p = y + 0.1 * torch::randn({1003}, torch::kFloat64) + 5;
    const std::span<const double> py(p.data_ptr<double>(), 1003), yy(y.data_ptr<double>(), 1003);
    JointMoments whole, single;
    whole.add(py, yy);
    for (std::size_t i = 0; i < 1003; ++i) single.add(py.subspan(i, 1), yy.subspan(i, 1));
    EXPECT_EQ(whole.count(), 1003);
    EXPECT_DOUBLE_EQ(whole.squared_error(), single.squared_error());
    EXPECT_DOUBLE_EQ(whole.centered_squared_error(), single.centered_squared_error());
    EXPECT_DOUBLE_EQ(whole.absolute_error(), single.absolute_error());
    EXPECT_DOUBLE_EQ(whole.relative_error(), single.relative_error());
    EXPECT_DOUBLE_EQ(whole.predicted_variation(), single.predicted_variation());
    EXPECT_DOUBLE_EQ(whole.expected_variation(), single.expected_variation());
    EXPECT_DOUBLE_EQ(whole.covariation(), single.covariation());
    EXPECT_NEAR(whole.expected_variation(), (y - y.mean()).square().sum().item<double>(), 1e-6);
  }
}

TEST(JointMoments, FloatsAreTakenAsTheyAre) {
  torch::manual_seed(2);
  const torch::Tensor y = torch::randn({100}), p = torch::randn({100});
  const torch::Tensor wide_y = y.to(torch::kFloat64), wide_p = p.to(torch::kFloat64);
  JointMoments narrow, wide;
  narrow.add(std::span<const float>(p.data_ptr<float>(), 100),
             std::span<const float>(y.data_ptr<float>(), 100));
  wide.add(std::span<const double>(wide_p.data_ptr<double>(), 100),
           std::span<const double>(wide_y.data_ptr<double>(), 100));
  EXPECT_EQ(narrow.squared_error(), wide.squared_error());
  EXPECT_EQ(narrow.covariation(), wide.covariation());
}

TEST(JointMoments, EqualNumbersDoNotVary) {
  for (const std::size_t size : {3u, 100u}) {
    const std::vector<double> tenths(size, 0.1);
    JointMoments moments;
    moments.add(tenths, tenths);
    EXPECT_EQ(moments.squared_error(), 0);
    EXPECT_EQ(moments.expected_variation(), 0);
    EXPECT_EQ(moments.covariation(), 0);
  }
}

TEST(JointMoments, AreNaNIfANumberIsNotFinite) {
  for (const double wrong : {std::nan(""), HUGE_VAL}) {
    for (const std::size_t size : {1u, 100u}) {
      std::vector<double> p(size, 1), y(size, 2);
      p.back() = wrong;
      JointMoments moments;
      moments.add(p, y);
      EXPECT_TRUE(std::isnan(moments.squared_error()));
      EXPECT_TRUE(std::isnan(moments.predicted_variation()));
      EXPECT_FALSE(std::isfinite(moments.absolute_error()));
    }
  }
}

}  // namespace
}  // namespace lockstep::metric
