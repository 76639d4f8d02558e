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
    // The sum, the division and the root are rounded once each.
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
  EXPECT_EQ(moments.samples(), 0);
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

TEST(Moments, AreOverWhateverTheValuesAreMeansOver) {
  Moments moments;
  moments.add({.value = 1, .weight = 0.5, .samples = 4});
  moments.add({.value = 4, .weight = 0.25, .samples = 2});
  moments.add({.value = 100, .weight = 0, .samples = 2});
  EXPECT_DOUBLE_EQ(moments.mean(), 2);
  EXPECT_EQ(moments.samples(), 6);
  EXPECT_DOUBLE_EQ(moments.std(), std::sqrt((0.5 * 1 + 0.25 * 4) / 0.75 * 6 / 5));
  EXPECT_THROW(moments.add({.value = 1, .weight = -0.5}), DataError);
  EXPECT_THROW(moments.add({.value = 1, .weight = std::nan("")}), DataError);
}

TEST(Moments, ReadsTheStateOfAnEarlierVersion) {
  Moments moments;
  moments.add(3, 4);
  const StateDict now = moments.state();
  StateDict old;
  for (const char* const key : {"sum", "sum_squares"}) old.set(key, now.get<torch::Tensor>(key));
  old.set("weight", now.get<std::int64_t>("weight"));
  EXPECT_EQ(Moments::from_state(old).mean(), 3);
}

}  // namespace
}  // namespace lockstep::metric
