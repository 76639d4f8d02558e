#include "lockstep/metric/moments.h"

#include <limits>

#include "tests/metric/golden.h"

namespace lockstep::metric {
namespace {

TEST(Moments, AreWhatRationalNumbersSay) {
  for (const auto& golden : golden().at("moments")) {
    SCOPED_TRACE(golden.at("name").get<std::string>());
    Moments moments;
    for (std::size_t i = 0; i < golden.at("values").size(); ++i) {
      moments.add(golden.at("values")[i], golden.at("weights")[i]);
    }
    EXPECT_EQ(moments.mean(), golden.at("mean").get<double>());
    // One rounding each of the sum, the division and the root.
    const auto expected = golden.at("std").get<double>();
    EXPECT_NEAR(moments.std(), expected, 1e-15 * expected);
  }
}

TEST(Moments, OneValueAndOneSampleDoNotDeviate) {
  Moments moments;
  moments.add(0.1, 1);
  EXPECT_EQ(moments.mean(), 0.1);
  EXPECT_EQ(moments.std(), 0);
  moments.add(0.1, 6);
  EXPECT_EQ(moments.mean(), 0.1);
  EXPECT_EQ(moments.std(), 0);
}

TEST(Moments, NothingHasNoMean) {
  Moments moments;
  moments.add(std::nan(""), 0);  // an empty batch has no value
  EXPECT_EQ(moments.weight(), 0);
  EXPECT_TRUE(std::isnan(moments.mean()));
  EXPECT_TRUE(std::isnan(moments.std()));
}

TEST(Moments, RefusesANegativeWeight) {
  Moments moments;
  EXPECT_THROW(moments.add(1, -3), DataError);
}

TEST(Moments, ShowsADivergedValue) {
  Moments moments;
  moments.add(1, 4);
  moments.add(std::numeric_limits<double>::infinity(), 4);
  EXPECT_EQ(moments.mean(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(moments.std()));
}

TEST(Moments, StateOfAnotherKindIsRefused) {
  EXPECT_THROW(Moments::from_state({{"weight", 3}}), CheckpointError);
  EXPECT_THROW(Moments::from_state({{"weight", 3},
                                    {"sum", torch::zeros({5}, torch::kInt64)},
                                    {"sum_squares", torch::zeros({5}, torch::kInt64)}}),
               CheckpointError);
}

}  // namespace
}  // namespace lockstep::metric
