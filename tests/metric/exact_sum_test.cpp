#include "lockstep/metric/exact_sum.h"

#include <algorithm>
#include <limits>
#include <random>

#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

double sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

TEST(ExactSum, IsWhatFsumSays) {
  for (const auto& golden : golden().at("sums")) {
    const auto terms = golden.at("terms").get<std::vector<double>>();
    EXPECT_EQ(sum_of(terms), golden.at("sum").get<double>()) << golden.at("name");
  }
}

TEST(ExactSum, DoesNotDependOnTheOrder) {
  auto terms = golden().at("sums").at(0).at("terms").get<std::vector<double>>();
  ExactSum first;
  for (const double term : terms) first.add(term);
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::ranges::shuffle(terms, random);
    ExactSum merged, rest;
    for (std::size_t t = 0; t < terms.size(); ++t) (t % 3 == 0 ? merged : rest).add(terms[t]);
    merged.merge(rest);
    EXPECT_EQ(merged.words(), first.words());
  }
}

TEST(ExactSum, RoundsToNearestAndTiesToEven) {
  constexpr double kHalfUlp = 0x1p-53;
  EXPECT_EQ(sum_of({1, kHalfUlp}), 1);
  EXPECT_EQ(sum_of({1, kHalfUlp, 0x1p-1000}), 1 + 0x1p-52);
  EXPECT_EQ(sum_of({1 + 0x1p-52, kHalfUlp}), 1 + 0x1p-51);
  EXPECT_EQ(sum_of({-1, -kHalfUlp, -0x1p-1000}), -1 - 0x1p-52);
  EXPECT_EQ(sum_of({1, kHalfUlp, -0x1p-1000}), 1);
}

TEST(ExactSum, ForgetsNothingBetweenTheExtremes) {
  constexpr double kMax = std::numeric_limits<double>::max();
  constexpr double kMin = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(sum_of({kMax, kMin, -kMax}), kMin);
  EXPECT_EQ(sum_of({kMax, kMax, -kMax}), kMax);
  EXPECT_EQ(sum_of({kMax, kMax}), HUGE_VAL);
  EXPECT_EQ(sum_of({-kMin}), -kMin);
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({1.5, -1.5}), 0);
}

TEST(ExactSum, CarriesThroughAMillionTerms) {
  ExactSum sum;
  for (int i = 0; i < 1'000'000; ++i) sum.add(0x1.fffffffffffffp0);
  EXPECT_EQ(sum.value(), 1e6 * 0x1.fffffffffffffp0);
}

TEST(ExactSum, ProductsAreNotRounded) {
  ExactSum sum;
  sum.add_product(0.1, 3);
  sum.add(-0.1);
  sum.add(-0.1);
  sum.add(-0.1);
  EXPECT_EQ(sum.value(), 0);
  EXPECT_NE(0.1 * 3 - 0.1 - 0.1 - 0.1, 0);  // the result in doubles
}

TEST(ExactSum, TermsAddUpToIt) {
  ExactSum sum;
  for (const double term : {1e200, 1.0, -3e-50, 1e-300}) sum.add(term);
  const auto terms = sum.terms();
  ASSERT_EQ(terms.size(), 4u);
  EXPECT_EQ(terms.front(), 1e200);
  for (const double term : terms) sum.add(-term);
  EXPECT_EQ(sum.value(), 0);
  EXPECT_TRUE(sum.terms().empty());
}

TEST(ExactSum, KeepsInfinitiesAndNaN) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sum_of({1, kInfinity, 2}), kInfinity);
  EXPECT_EQ(sum_of({1, -kInfinity}), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({1, std::nan("")})));
}

}  // namespace
}  // namespace lockstep::metric
