#include "lockstep/science/statistics.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/science/support.h"

namespace lockstep::science {
namespace {

TEST(Statistics, AreSciPysAndNumPys) {
  const auto golden = testing::golden();
  const torch::Tensor a = testing::field({12, 10, 8}, 1), b = testing::field({9, 7, 8}, 5);
  EXPECT_NEAR(ks_statistic(a, b), golden["ks"].get<double>(), 1e-5);
  EXPECT_NEAR(ks_statistic(torch::round(a * 10), torch::round(b * 10)),
              golden["ks_same"].get<double>(), 1e-5)
      << "with ties";
  const auto& expected = golden["histogram"];
  const Histogram made = histogram(a, {.first = expected["first"], .last = expected["last"]}, 20);
  testing::expect_near(made.density, expected["density"]);
  testing::expect_near(made.edge, expected["edges"]);
}

TEST(Statistics, KsOfTheSameIsZeroAndOfStrangersOne) {
  const torch::Tensor a = torch::arange(10.0);
  EXPECT_EQ(ks_statistic(a, a), 0);
  EXPECT_EQ(ks_statistic(a, a + 100), 1);
}

TEST(Statistics, TheCdfEndsAtOne) {
  const Cdf cdf = cumulative(torch::tensor({3.0, 1.0, 2.0}));
  EXPECT_EQ(cdf.value, (std::vector<double>{1, 2, 3}));
  EXPECT_DOUBLE_EQ(cdf.fraction.back(), 1);
  EXPECT_EQ(cumulative(torch::arange(100000.0), 50).value.size(), 50u);
}

TEST(Statistics, OneValueAndNone) {
  EXPECT_NEAR(histogram(torch::full({5}, 2.0), {2, 2}, 10).density[5], 10, 1e-9);
  EXPECT_THROW(ks_statistic(torch::ones({0}), torch::ones({1})), DataError);
  EXPECT_THROW(ks_statistic(torch::full({1}, NAN), torch::ones({1})), DataError);
}

}  // namespace
}  // namespace lockstep::science
